/** A mistake that only some checks meet is a finding, and stops none of the others. */
import { expect } from "bun:test";
import { loadPlugins } from "../../plugins/registry.ts";
import { withRuntimeContext } from "../../runtime/runtime.ts";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { useDirectory } from "../../testing/directory.ts";
import { netnsTest } from "../../testing/netns.ts";
import { examineNetwork, isBroken } from "./examine.ts";

await loadPlugins();
const directory = useDirectory("cni-doctor-");

netnsTest("a network whose state directory cannot be told is examined all the same", ({ host }) => {
  const ipam = { type: "host-local", dataDir: 5, subnet: "10.9.0.0/24" };
  const network = parseNetworkConfigList(
    JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "bridge", ipam }] }),
  );
  const options = { env: {}, pluginDirectories: [], cacheDirectory: directory, log: () => {} };
  const { findings } = host.run(() =>
    withRuntimeContext(options, (context) => examineNetwork(context, network, { looksOnly: true }))
  );
  expect(findings.map(({ check }) => check)).toContain("plugins");
  expect(findings.filter(isBroken).map(({ what }) => what)).toContainEqual(
    expect.stringContaining("ipam.dataDir must be a non-empty string: got 5"),
  );
});
