import { beforeAll, expect, test } from "bun:test";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { runInNetns } from "../../testing/netns.ts";
import { tryPorts } from "./checks/port_tries.ts";
import { isBroken } from "./examine.ts";
import { TryBudget } from "./try_budget.ts";

beforeAll(() => loadPlugins());

test("the command removes the rule that stops calls, on the host and in a container", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  const { c1, shell } = doctorHost;
  const broken = () => doctorHost.withSubject((subject) => tryPorts(subject, new TryBudget())).filter(isBroken);
  shell("iptables -A OUTPUT -p tcp --dport 80 -j REJECT");
  runInNetns(c1, "ip6tables", "-A", "INPUT", "-p", "tcp", "--dport", "80", "-j", "REJECT");
  const mends = new Set(broken().map(({ mend }) => mend));
  expect([...mends]).toEqual([
    expect.stringMatching(/^nft delete rule ip filter OUTPUT handle \d+$/),
    expect.stringMatching(new RegExp(`^nsenter --net=${c1.path} nft delete rule ip6 filter INPUT handle \\d+$`)),
  ]);
  for (const mend of mends) shell(mend!);
  expect(broken()).toEqual([]);
});

test("a rule that may match, and one for other ports, are not named", async () => {
  using doctorHost = newDoctorHost();
  using _ = await doctorHost.serve();
  const { c1 } = doctorHost;
  const iptables = (...words: string[]) => runInNetns(c1, "iptables", ...words);
  iptables("-A", "INPUT", "-p", "tcp", "--dport", "81", "-j", "DROP");
  iptables("-A", "INPUT", "-p", "tcp", "-m", "length", "--length", "1:2000", "-j", "REJECT");
  const findings = doctorHost.withSubject((subject) => tryPorts(subject, new TryBudget())).filter(isBroken);
  expect(findings.map(({ what }) => what)).toEqual([
    expect.stringMatching(/ to 192\.0\.2\.1 (is refused|finds no way)$/),
    expect.stringMatching(/ to 127\.0\.0\.1 (is refused|timed out)$/),
  ]);
});
