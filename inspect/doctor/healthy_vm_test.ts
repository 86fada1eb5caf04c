/** VLANs of bridges, ipvlan and VRFs: not every kernel has them. */
import { expect, test } from "bun:test";
import { join } from "node:path";
import { loadPlugins } from "../../plugins/registry.ts";
import { useDirectory } from "../../testing/directory.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { runIp } from "../../testing/netns.ts";

await loadPlugins();
const root = useDirectory("cni-healthy-vm-");

const VLAN = { type: "bridge", bridge: "br9", isGateway: true, ipMasq: true, vlan: 100 };
const LAYER_2 = { routes: [], portMappings: [] };

for (
  const [name, main, plugins, options] of [
    ["a VLAN", VLAN, [{ type: "tuning", dataDir: join(root, "a"), txQLen: 77 }], {}],
    ["a VLAN that the host is not in", { type: "bridge", bridge: "br9", vlan: 100 }, [], LAYER_2],
    ["ipvlan", { type: "ipvlan", master: "up0" }, [], LAYER_2],
    ["a VRF", { type: "bridge", bridge: "br9", isGateway: true }, [{ type: "vrf", vrfname: "red" }], LAYER_2],
  ] as const
) {
  test(`doctor finds nothing on a healthy host with ${name}`, async () => {
    using doctorHost = newDoctorHost({ main, plugins: [...plugins], ...options as object });
    using _server = await doctorHost.serve();
    const { findings } = doctorHost.examine();
    expect(findings.filter(({ severity }) => severity !== "ok")).toEqual([]);
  });
}

test("the host's interface in a VLAN comes up again, with its addresses", async () => {
  using doctorHost = newDoctorHost({ main: VLAN });
  using _server = await doctorHost.serve();
  const { host } = doctorHost;
  runIp(host, "addr del 10.9.0.1/29 dev br9.100");
  expect(doctorHost.broken()).toContain('gateway address 10.9.0.1/29 is missing on "br9.100"');
  runIp(host, "link set br9.100 down");
  expect(doctorHost.broken()).toContain('interface "br9.100" is down');
  expect(doctorHost.fix()).toEqual([]);
  runIp(host, "link del br9.100");
  expect(doctorHost.broken().filter((what) => what.includes("br9.100"))).toEqual(['interface "br9.100" is missing']);
});
