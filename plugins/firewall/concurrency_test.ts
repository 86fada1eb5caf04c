import { expect } from "bun:test";
import { ENGINE_ENV, pluginLink, testWith } from "../../testing/binary.ts";
import { type Namespaces, newNamespaces, runShellInNetns } from "../../testing/netns.ts";
import { iptablesSave } from "../../testing/ruleset.ts";

/** Calls the binary for a container without waiting. */
async function call({ host, container }: Namespaces, verb: string, n: number): Promise<string> {
  const prevResult = { cniVersion: "1.1.0", ips: [{ address: `10.1.0.${n}/24` }, { address: `fd00::${n}/64` }] };
  const stdin = JSON.stringify({ cniVersion: "1.1.0", name: "web", type: "firewall", prevResult });
  const env = { ...ENGINE_ENV, CNI_COMMAND: verb, CNI_CONTAINERID: `c${n}`, CNI_NETNS: container.path };
  const child = host.run<Bun.Subprocess<Blob, "pipe", "ignore">>(() =>
    Bun.spawn([pluginLink("firewall")], { env, stdin: new Blob([stdin]), stdout: "pipe", stderr: "ignore" })
  );
  const stdout = await new Response(child.stdout).text();
  return await child.exited === 0 ? "ok" : stdout;
}

const numbers = Array.from({ length: 16 }, (_, i) => i + 2);

testWith(
  ["iptables"],
  "containers that come and go at the same time, beside an iptables at work, leave nothing",
  async () => {
    using namespaces = newNamespaces();
    const { host } = namespaces;
    runShellInNetns(host, "iptables -P FORWARD DROP; ip6tables -P FORWARD DROP");
    const before = iptablesSave(host);
    const busy = host.run(() =>
      Bun.spawn([
        "sh",
        "-e",
        "-c",
        "for n in $(seq 40); do iptables -A OUTPUT -j ACCEPT; iptables -D OUTPUT -j ACCEPT; done",
      ])
    );
    const all = (verb: string) => Promise.all(numbers.map((n) => call(namespaces, verb, n)));
    expect(new Set(await all("ADD"))).toEqual(new Set(["ok"]));
    expect(iptablesSave(host).match(/-A FORWARD/g)).toHaveLength(2);
    expect(iptablesSave(host).match(/-A CNI-FORWARD/g)).toHaveLength(4);
    expect(new Set(await all("CHECK"))).toEqual(new Set(["ok"]));
    expect(new Set(await all("DEL"))).toEqual(new Set(["ok"]));
    expect(await busy.exited).toBe(0);
    expect(iptablesSave(host)).toBe(before);
  },
);
