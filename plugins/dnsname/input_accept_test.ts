/** Firewalls of other programs that drop what containers send to the host. */
import { describe, expect } from "bun:test";
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  dig,
  digValues,
  nameServerTest,
  newNameSite,
  servedNamesTest,
  startNameServer,
} from "../../testing/dnsname.ts";
import { runShellInNetns } from "../../testing/netns.ts";
import { errorOfCall } from "../../testing/plugin_call.ts";
import { foreignRuleset, iptablesSave, nftListRuleset } from "../../testing/ruleset.ts";
import tested from "./plugin.ts";

const FIREWALLS: Readonly<Record<string, string>> = {
  "iptables with a policy": "iptables -P INPUT DROP; ip6tables -P INPUT DROP",
  // As ufw does it: rules of its own, then a reject.
  "iptables with chains": `for each in iptables ip6tables; do
      $each -N ufw-before-input; $each -A INPUT -j ufw-before-input; $each -A INPUT -j REJECT
      $each -A ufw-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
    done`,
  "nft with a policy": `nft 'table inet fw { chain in { type filter hook input priority 0; policy drop; }; }'`,
  "nft with a last rule": `nft 'table inet fw { chain in { type filter hook input priority 0; ip6 nexthdr icmpv6 accept
    tcp dport 22 accept; reject; }; }'`,
};
/** Without neighbour discovery, IPv6 does not work at all. */
const NEIGHBOURS = `ip6tables -I INPUT -p icmpv6 -j ACCEPT; nft insert rule inet fw in icmpv6 type \\
  '{ nd-neighbor-solicit, nd-neighbor-advert }' accept 2>/dev/null || :`;

describe("questions come in through a firewall that drops the rest, as long as there is a container:", () => {
  for (const [name, lines] of Object.entries(FIREWALLS)) {
    nameServerTest(name, (network) => {
      using site = newNameSite();
      using _server = startNameServer(network.host, site.paths);
      const { host } = network;
      const container = network.container(2);
      runShellInNetns(host, lines, NEIGHBOURS);
      const before = [foreignRuleset(host), iptablesSave(host)];
      const call = (verb: "ADD" | "CHECK" | "DEL", containerId = "one") =>
        network.call(tested, verb, site.config, { container, containerId });
      call("ADD");
      const asked = () =>
        ["@10.88.0.1", "@fd88::1"].flatMap((server) =>
          [[], ["+tcp"]].flatMap((words) => digValues(container.netns, server, "+timeout=2", ...words, "one"))
        );
      expect(asked()).toEqual(Array(4).fill("10.88.0.2"));
      call("CHECK");
      // Nothing else is open.
      expect(dig(container.netns, "@192.0.2.1", "+timeout=1", "one")).toBeUndefined();
      const attached = nftListRuleset(host);
      call("ADD", "two");
      expect(nftListRuleset(host).replace(/packets \d+ bytes \d+/g, "")).toBe(
        attached.replace(/packets \d+ bytes \d+/g, ""),
      );
      call("DEL", "two");
      expect(asked()).toHaveLength(4);

      runShellInNetns(host, "nft flush chain inet cni names_input");
      expect(errorOfCall(() => call("CHECK")).message).toContain("the ruleset has no mark for questions to 10.88.0.1");
      expect(network.restore(tested, site.config, { container, containerId: "one" })).toEqual([
        'mark for questions to 10.88.0.1 from link "br0"',
        'mark for questions to fd88::1 from link "br0"',
      ]);
      expect(asked()).toHaveLength(4);
      call("DEL");
      expect([foreignRuleset(host), iptablesSave(host)]).toEqual(before);
      expect(nftListRuleset(host)).not.toContain("names_input");
    }, ["iptables"]);
  }
});

servedNamesTest(
  "rules stay as long as a record that cannot be read may need them",
  (network, site) => {
    const { host } = network;
    const container = network.container(2);
    runShellInNetns(host, "iptables -P INPUT DROP");
    for (const containerId of ["one", "two"]) network.call(tested, "ADD", site.config, { container, containerId });
    const record = readdirSync(site.paths.state).find((name) => name.includes(":two:"))!;
    // A later program wrote it.
    const path = join(site.paths.state, record);
    writeFileSync(path, readFileSync(path, "utf8").replace('"version": 1', '"version": 2'));
    network.call(tested, "DEL", site.config, { container, containerId: "one" });
    const collect = () => network.call(tested, "GC", { ...site.config, "cni.dev/valid-attachments": [] });
    collect();
    expect(nftListRuleset(host)).toContain("names_input");
    network.call(tested, "DEL", site.config, { container, containerId: "two" });
    collect();
    expect(nftListRuleset(host)).not.toContain("names_input");
  },
  ["iptables"],
);

servedNamesTest("without a firewall there are no rules", (network, site) => {
  runShellInNetns(network.host, "nft 'table inet fw { chain in { type filter hook input priority 0; accept; }; }'");
  const before = nftListRuleset(network.host);
  const container = network.container(2);
  network.call(tested, "ADD", site.config, { container });
  expect(nftListRuleset(network.host)).toBe(before);
});

servedNamesTest(
  "a firewall that iptables saves and loads keeps the rules, and nobody else's mark opens it",
  (network, site) => {
    const { host } = network;
    const container = network.container(2);
    runShellInNetns(host, "iptables -P INPUT DROP");
    network.call(tested, "ADD", site.config, { container, containerId: "one" });
    runShellInNetns(host, "iptables-save >/tmp/rules.$$; iptables-restore </tmp/rules.$$; rm /tmp/rules.$$");
    expect(digValues(container.netns, "@10.88.0.1", "+timeout=2", "one")).toEqual(["10.88.0.2"]);
    runShellInNetns(
      host,
      "nft 'table inet m { chain c { type filter hook prerouting priority -150; meta mark set 0x20000000; }; }'",
    );
    expect(dig(container.netns, "@192.0.2.1", "+timeout=1", "one")).toBeUndefined();
    network.call(tested, "CHECK", site.config, { container, containerId: "one" });
  },
  ["iptables"],
);
