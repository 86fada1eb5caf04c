/** What tools tell of `network-policy`: they ask `model.ts`, and know no plugin by name. */
import { expect } from "bun:test";
import { examineNetwork } from "../../inspect/doctor/examine.ts";
import { dryRunOfAdd } from "../../inspect/effects/dry_run_add.ts";
import { gatherNodeTree } from "../../inspect/show/gather.ts";
import { loadPlugins } from "../registry.ts";
import { Runtime, withRuntimeContext } from "../../runtime/runtime.ts";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { runInNetns, runShellInNetns } from "../../testing/netns.ts";
import { sandboxTest } from "../../testing/sandbox.ts";

await loadPlugins();

sandboxTest(
  "dry run, show, doctor and restore know what network-policy has made",
  [],
  ({ host, container, directory }) => {
    const network = parseNetworkConfigList(JSON.stringify({
      cniVersion: "1.1.0",
      name: "web",
      plugins: [
        { type: "ptp", ipam: { type: "host-local", dataDir: directory, ranges: [[{ subnet: "10.9.0.0/24" }]] } },
        { type: "network-policy" },
      ],
    }));
    const options = { env: {}, pluginDirectories: [], cacheDirectory: `${directory}/cache`, log: () => {} };
    const runtime = new Runtime(options);
    const parameters = { containerId: "c1", ifname: "eth0", netns: container.path };
    const { effects } = host.run(() => dryRunOfAdd(runtime, network, parameters));
    const sentences = effects.map(({ sentence }) => sentence).join("\n");
    for (const word of ["svc0", "10.77.0.1/32", "arp_ignore", "network-policy4"]) expect(sentences).toContain(word);

    host.run(() => runtime.add(network, parameters));
    const shown = JSON.stringify(host.run(() => gatherNodeTree(runtime.attachments(), { showsOtherPorts: true })));
    for (const word of ["svc0", "10.77.0.1"]) expect(shown).toContain(word);

    const problems = () =>
      host.run(() => withRuntimeContext(options, (context) => examineNetwork(context, network, { looksOnly: true })))
        .findings.filter(({ severity }) => severity === "broken").map(({ what }) => what);
    expect(problems()).toEqual([]);
    runShellInNetns(container, "ip addr del 10.77.0.1/32 dev svc0; echo 0 >/proc/sys/net/ipv4/conf/svc0/arp_ignore");
    expect(problems()).toEqual([
      expect.stringContaining('plugin "network-policy"'),
      expect.stringContaining("arp_ignore in the container is 0, expected 1"),
    ]);
    runShellInNetns(container, "ip addr add 10.77.0.1/32 dev svc0; echo 1 >/proc/sys/net/ipv4/conf/svc0/arp_ignore");
    runInNetns(host, "nft", "flush", "ruleset");
    expect(problems()).toEqual([expect.stringContaining("the rule for 10.9.0.2 and 10.77.0.1")]);
    // The server's heal calls this too.
    expect(host.run(() => runtime.restore()).attachments[0]?.plugins.at(-1)?.restored).toEqual([
      "the rule for 10.9.0.2 and 10.77.0.1",
    ]);
    expect(problems()).toEqual([]);
  },
);
