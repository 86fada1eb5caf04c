/** Two healthy containers of each kind of network: doctor finds nothing. */
import { expect, test } from "bun:test";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { loadPlugins } from "../../plugins/registry.ts";
import { useDirectory } from "../../testing/directory.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { runIp } from "../../testing/netns.ts";

await loadPlugins();
const root = useDirectory("cni-healthy-");

const tuning = (name: string) => ({
  type: "tuning",
  dataDir: join(root, name),
  sysctl: { "net.ipv4.conf.IFNAME.arp_announce": "2", "net.ipv4.route.flush": "1" },
  allmulti: true,
  promisc: true,
  txQLen: 77,
});

for (
  const [name, main, options] of [
    ["a bridge in promiscuous mode", {
      type: "bridge",
      bridge: "br9",
      isGateway: true,
      ipMasq: true,
      promiscMode: true,
    }],
    ["a bridge that is no gateway", { type: "bridge", bridge: "br9" }, { routes: [] }],
    ["a default gateway", { type: "bridge", bridge: "br9", isDefaultGateway: true, ipMasq: true, hairpinMode: true }],
    ["ptp", { type: "ptp", ipMasq: true }],
    ["ptp without masquerading", { type: "ptp" }],
    ["isolated", { type: "bridge", bridge: "br9", isGateway: true, portIsolation: true, macspoofchk: true }],
    ["macvlan", { type: "macvlan", master: "up0" }, { routes: [], portMappings: [] }],
  ] as const
) {
  test(`doctor finds nothing on a host with ${name}`, async () => {
    using doctorHost = newDoctorHost({ main, plugins: [tuning(name)], ...options as object });
    using _server = await doctorHost.serve();
    const { findings } = doctorHost.examine();
    expect(findings.filter(({ severity }) => severity !== "ok")).toEqual([]);
  });
}

test("a parameter that can only be written hides no difference, though its backup is gone", () => {
  using doctorHost = newDoctorHost({ plugins: [tuning("gone")] });
  rmSync(join(root, "gone"), { recursive: true });
  runIp(doctorHost.host, "addr del 10.9.0.1/29 dev br9");
  expect(doctorHost.broken()).toContain('gateway address 10.9.0.1/29 is missing on "br9"');
});
