/** A node that is taken over: the Go plugin has two rules for each of its containers in the chain that both share. */
import { expect, spyOn } from "bun:test";
import { expression } from "../../ffi/nft/expressions.ts";
import { bridgeNetworkTest } from "../../testing/bridge_network.ts";
import { runInNetns, runShellInNetns } from "../../testing/netns.ts";
import { IPTABLES_DROPPING } from "../../testing/ruleset.ts";
import firewall from "./plugin.ts";

bridgeNetworkTest(
  "beside many containers of the Go plugin, no more of its rules are decoded than beside few",
  (network) => {
    const { host, call } = network;
    const own = { container: network.container(2) };
    const ofGoPlugin = { container: network.container(3), containerId: "c2" };
    runShellInNetns(host, IPTABLES_DROPPING);
    // Our rules stand behind those that were there before.
    const load = (containers: number) => {
      const addresses = [
        "10.88.0.3",
        ...Array.from({ length: containers }, (_, i) => `10.88.${1 + (i >> 8)}.${i & 255}`),
      ];
      const rules = addresses.flatMap((address) => [
        `-A CNI-FORWARD -d ${address}/32 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`,
        `-A CNI-FORWARD -s ${address}/32 -j ACCEPT`,
      ]);
      const text = ["*filter", ":CNI-FORWARD - [0:0]", ...rules, "COMMIT\n"].join("\n");
      runShellInNetns(host, `iptables-restore --noflush <<'END'\n${text}END`);
    };
    using read = spyOn(expression, "read");
    const decoded = (verb: "ADD" | "CHECK" | "DEL", of: typeof own) => {
      read.mockClear();
      call(firewall, verb, {}, of);
      return read.mock.calls.length;
    };
    const decodedBeside = (containers: number) => {
      load(containers);
      const counts = [decoded("ADD", own), decoded("CHECK", own), decoded("DEL", ofGoPlugin), decoded("DEL", own)];
      const left = runInNetns(host, "iptables", "-S", "CNI-FORWARD");
      expect(left).toContain("10.88.1.0/32");
      expect(left).not.toContain("10.88.0.3/32");
      return counts;
    };
    // The first makes our tables.
    decodedBeside(2);
    expect(decodedBeside(200)).toEqual(decodedBeside(2));
  },
);
