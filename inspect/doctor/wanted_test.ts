/** What plugins want is compared in one place: doctor and CHECK say the same of it. */
import { expect, test } from "bun:test";
import { existsSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../../ffi/netns/netns.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { withRuntimeContext } from "../../runtime/runtime.ts";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { useDirectory } from "../../testing/directory.ts";
import { newDoctorHost } from "../../testing/doctor_host.ts";
import { runIp, runShellInNetns } from "../../testing/netns.ts";
import { checkWantedByPlugins } from "./checks/wanted_by_plugins.ts";
import { examineNetwork, isBroken } from "./examine.ts";

await loadPlugins();
const root = useDirectory("cni-wanted-");

const PARAMETER = "net.ipv4.conf.eth0.arp_announce";
const PORTS = "net.ipv4.ip_local_reserved_ports";

test("what tuning has set is named with a command each, in the kernel's form", async () => {
  const sysctl = { [PARAMETER]: "2", [PORTS]: "8,9,10", "net.ipv4.route.flush": "1" };
  using doctorHost = newDoctorHost({
    plugins: [{ type: "tuning", dataDir: join(root, "a"), sysctl, txQLen: 77, allmulti: true }],
  });
  using _server = await doctorHost.serve();
  expect(doctorHost.broken()).toEqual([]);
  const { c1 } = doctorHost;
  runShellInNetns(c1, `echo 0 >/proc/sys/${PARAMETER.replaceAll(".", "/")}; ip link set eth0 txqueuelen 78`);
  const wrong = doctorHost.examine().findings.filter(isBroken);
  const enter = `nsenter --net=${c1.path}`;
  expect(wrong.map(({ what, mend }) => [what.replace(/^.*: /, ""), mend?.replace(/^ip -n \S+/, `${enter} ip`)]))
    .toEqual([
      [
        'length of the transmit queue of "eth0" in the container is 78, expected 77',
        `${enter} ip link set eth0 txqueuelen 77`,
      ],
      [`${PARAMETER} in the container is 0, expected 2`, `${enter} sysctl -w ${PARAMETER}=2`],
    ]);
  for (const { mend } of wrong) doctorHost.shell(mend!);
  expect(doctorHost.broken()).toEqual([]);
  runShellInNetns(c1, `echo 0 >/proc/sys/${PARAMETER.replaceAll(".", "/")}`);
  expect(doctorHost.broken()).toHaveLength(1);
  expect(doctorHost.fix()).toEqual([]);
});

test("an interface that is missing is named once, though tuning has set it", () => {
  using doctorHost = newDoctorHost({ plugins: [{ type: "tuning", dataDir: join(root, "b"), txQLen: 77 }] });
  runIp(doctorHost.c2, "link del eth0");
  const { findings } = doctorHost.examine(doctorHost.c2.path);
  expect(findings.filter(isBroken).map(({ what }) => what)).toEqual([
    `interface "eth0" is missing in ${doctorHost.c2.path}`,
  ]);
});

test("a bridge that is missing is named once for all its containers", () => {
  using doctorHost = newDoctorHost();
  runIp(doctorHost.host, "link del br9");
  const { findings } = doctorHost.examine();
  expect(findings.filter(({ what }) => what.includes('bridge "br9"')).map(({ what }) => what)).toEqual([
    'bridge "br9" is missing',
  ]);
});

test("a container that ends meanwhile hides no difference of the others", () => {
  using doctorHost = newDoctorHost({ plugins: [{ type: "tuning", dataDir: join(root, "c"), txQLen: 77 }] });
  using ending = startInNetns();
  doctorHost.add(ending, "c3");
  runIp(doctorHost.c1, "link set eth0 txqueuelen 78");
  const findings = doctorHost.withSubject((subject) => {
    expect(subject.containers).toHaveLength(3);
    ending[Symbol.dispose]();
    return checkWantedByPlugins(subject);
  });
  expect(findings.map(({ what }) => what)).toEqual([
    expect.stringContaining('length of the transmit queue of "eth0" in the container is 78'),
  ]);
  expect(doctorHost.log).toContainEqual(expect.stringContaining(ending.path));
});

/** A process with a namespace that ends with it. */
function startInNetns(): Pick<Netns, "path"> & Disposable {
  const child = Bun.spawn(["unshare", "--net", "sleep", "infinity"]);
  const path = `/proc/${child.pid}/ns/net`;
  while (readlinkSync(path) === readlinkSync("/proc/self/ns/net")) Bun.sleepSync(5);
  return {
    path,
    [Symbol.dispose]() {
      child.kill("SIGKILL");
      while (existsSync(path)) Bun.sleepSync(5);
    },
  };
}

test("the gateway of a ptp link comes back", async () => {
  using doctorHost = newDoctorHost({ main: { type: "ptp", ipMasq: true } });
  using _server = await doctorHost.serve();
  const { port } = doctorHost;
  runIp(doctorHost.host, `addr del 10.9.0.1/32 dev ${port}`);
  expect(doctorHost.broken()).toContain(`gateway address 10.9.0.1/32 is missing on "${port}"`);
});

test("a container is compared with the configuration of its ADD, not with the changed one", async () => {
  using doctorHost = newDoctorHost();
  using _server = await doctorHost.serve();
  const { host, directory } = doctorHost;
  const ipam = { type: "host-local", dataDir: `${directory}/networks`, ranges: [[{ subnet: "10.10.0.0/24" }]] };
  const changed = parseNetworkConfigList(JSON.stringify({
    cniVersion: "1.1.0",
    name: "web",
    plugins: [{ type: "bridge", bridge: "br10", isGateway: true, ipam }],
  }));
  const options = { env: {}, pluginDirectories: [], cacheDirectory: directory, log: () => {} };
  const whats = (severity: string) =>
    host.run(() => withRuntimeContext(options, (context) => examineNetwork(context, changed, { looksOnly: true })))
      .findings.filter((finding) => finding.severity === severity).map(({ what }) => what);
  expect(whats("broken")).toEqual([]);
  expect(whats("warning")).toContainEqual(expect.stringContaining("the configuration has changed since"));
  runIp(host, "addr del 10.9.0.1/29 dev br9");
  expect(whats("broken")).toEqual(['gateway address 10.9.0.1/29 is missing on "br9"']);
});
