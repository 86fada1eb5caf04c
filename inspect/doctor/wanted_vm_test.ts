/** What plugins want of VRFs and VLANs, which few kernels of containers have. */
import { expect, test } from "bun:test";
import { loadPlugins } from "../../plugins/registry.ts";
import { type DoctorHost, newDoctorHost } from "../../testing/doctor_host.ts";
import { runIp } from "../../testing/netns.ts";

await loadPlugins();

const wrong = (doctorHost: DoctorHost) =>
  doctorHost.examine().findings.filter(({ check }) => check === "wanted by plugins").map(({ what }) => what);

test("a VRF that is down comes up, and an interface that left it is named", () => {
  using doctorHost = newDoctorHost({ plugins: [{ type: "vrf", vrfname: "red", table: 10 }] });
  const { c1 } = doctorHost;
  expect(wrong(doctorHost)).toEqual([]);
  runIp(c1, "link set red down");
  expect(wrong(doctorHost)).toEqual([`plugin "vrf" of ${c1.path}: vrf "red" in the container is down`]);
  doctorHost.fix();
  expect(wrong(doctorHost)).toEqual([]);
  runIp(c1, "link set eth0 nomaster");
  expect(wrong(doctorHost)).toEqual([
    `plugin "vrf" of ${c1.path}: interface "eth0" in the container is no port of "red"`,
  ]);
});

test("the gateway of a VLAN is an interface of its own", () => {
  using doctorHost = newDoctorHost({ main: { type: "bridge", bridge: "br9", isGateway: true, vlan: 100 } });
  const { host } = doctorHost;
  expect(wrong(doctorHost)).toEqual([]);
  runIp(host, "addr del 10.9.0.1/29 dev br9.100");
  expect(wrong(doctorHost)).toEqual(['gateway address 10.9.0.1/29 is missing on "br9.100"']);
  doctorHost.fix();
  expect(wrong(doctorHost)).toEqual([]);
  runIp(host, "link del br9.100");
  expect(wrong(doctorHost)).toEqual(['interface "br9.100" is missing']);
});
