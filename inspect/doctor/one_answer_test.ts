/** Questions that doctor and a plugin both ask have one answer. */
import { expect, test } from "bun:test";
import { createNetns } from "../../ffi/netns/netns.ts";
import { describeUnforwardedLink } from "../../plugins/lib/links/reachability.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { runInNetns, runIp, runShellInNetns } from "../../testing/netns.ts";
import { isBroken } from "./examine.ts";

await loadPlugins();

test("a port leads to the first address of each family", async () => {
  const ranges = [[{ subnet: "10.9.0.0/29" }], [{ subnet: "10.9.1.0/29" }], [{ subnet: "fd00:9::/64" }]];
  using doctorHost = newDoctorHost({ ranges, hasFirewall: true });
  using _server = await doctorHost.serve();
  expect(doctorHost.broken()).toEqual([]);
});

test("the command for a link whose name holds a dot names a kernel parameter that exists", () => {
  using host = createNetns();
  runShellInNetns(host, "ip link add cni0.100 type bridge; echo 1 >/proc/sys/net/ipv4/ip_forward");
  runShellInNetns(host, "echo 0 >/proc/sys/net/ipv4/conf/cni0.100/forwarding");
  const [problem] = describeUnforwardedLink(host, { name: "cni0.100" });
  const command = problem!.slice(problem!.indexOf("sysctl -w"));
  runInNetns(host, "sh", "-c", command);
  expect(describeUnforwardedLink(host, { name: "cni0.100" })).toEqual([]);
});

test("a restore accepts packets in a table with the administrator's chain", () => {
  using doctorHost = newDoctorHost({ hasFirewall: true });
  doctorHost.shell(
    "nft add table inet other; nft add chain inet other CNI-ADMIN",
    "nft add chain inet other forward '{ type filter hook forward priority 10; }'",
    "nft add rule inet other forward tcp dport 443 drop; nft add rule inet other forward udp dport 1 accept",
  );
  const [drop] = doctorHost.examine().findings.filter(({ check }) => check === "forward chains");
  expect(drop).toMatchObject({ severity: "broken", mend: "cni run restore web" });
  doctorHost.fix();
  expect(doctorHost.broken().filter((what) => what.includes("forwarded"))).toEqual([]);
});

test("a gateway has the prefix length of the ADD", async () => {
  using doctorHost = newDoctorHost();
  using _server = await doctorHost.serve();
  runIp(doctorHost.host, "addr del 10.9.0.1/29 dev br9");
  runIp(doctorHost.host, "addr add 10.9.0.1/28 dev br9");
  const [missing] = doctorHost.examine().findings.filter(isBroken);
  expect(missing).toMatchObject({ check: "wanted by plugins", mend: "ip addr add 10.9.0.1/29 dev br9" });
  expect(doctorHost.fix()).toEqual([]);
});

test("the host's end of a ptp link must forward", async () => {
  using doctorHost = newDoctorHost({ main: { type: "ptp", ipMasq: true } });
  using _server = await doctorHost.serve();
  doctorHost.shell(`echo 0 >/proc/sys/net/ipv4/conf/${doctorHost.port}/forwarding`);
  expect(doctorHost.broken()).toEqual([expect.stringContaining("forwards no IPv4 packets that come in by")]);
  expect(doctorHost.fix()).toEqual([]);
});
