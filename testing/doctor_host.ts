/** A host whose network the doctor examines. @module */
import { afterAll, expect } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { examineNetwork, isBroken, type NetworkDiagnosis } from "../inspect/doctor/examine.ts";
import type { Finding } from "../inspect/doctor/finding.ts";
import { applyRepair } from "../inspect/doctor/repair.ts";
import { lookUpSubject, type Subject } from "../inspect/doctor/subject.ts";
import { Runtime, withRuntimeContext } from "../runtime/runtime.ts";
import { parseNetworkConfigList } from "../spec/network_config_list.ts";
import { newNetns, runInNetns, runIp, runShellInNetns, WITHOUT_BRIDGE_NETFILTER } from "./netns.ts";
import { connectOutside } from "./outside.ts";
import { serveTcpAndUdp } from "./traffic.ts";

export interface DoctorHost extends Disposable {
  readonly host: Netns;
  readonly c1: Netns;
  readonly c2: Netns;
  readonly outside: Netns;
  /** Where plugins keep their state. */
  readonly directory: string;
  /** The lines that repairs have said. */
  readonly log: readonly string[];
  /** Services in c1 on the published ports. */
  serve(): Promise<Disposable>;
  add(netns: Pick<Netns, "path">, containerId: string): void;
  /** The host's end of the veth pair of c1. */
  readonly port: string;
  /** Looks only, unless told otherwise. */
  examine(netnsPath?: string, looksOnly?: boolean): NetworkDiagnosis;
  /** Runs a single check on this host. */
  withSubject(use: (subject: Subject) => Finding[]): Finding[];
  /** What is broken, in words. */
  broken(): string[];
  /** Does what findings offer. @returns what is still broken */
  fix(): string[];
  shell(...lines: string[]): void;
}

const IPAM = {
  type: "host-local",
  ranges: [[{ subnet: "10.9.0.0/29" }], [{ subnet: "fd00:9::/64" }]],
  routes: [{ dst: "0.0.0.0/0" }, { dst: "::/0" }],
};
const BRIDGE = { type: "bridge", bridge: "br9", isGateway: true, ipMasq: true };
const PORT_MAPPINGS = [
  { hostPort: 8080, containerPort: 80, protocol: "tcp" },
  { hostPort: 5353, containerPort: 53, protocol: "udp" },
];

/** A host with an uplink, and two containers; the first publishes ports. */
export function newDoctorHost(
  {
    hasFirewall = false,
    isInternal = false,
    routes = IPAM.routes as object[],
    ranges = IPAM.ranges,
    main = BRIDGE as object,
    plugins = [] as object[],
    portMappings = PORT_MAPPINGS as object[],
  } = {},
): DoctorHost {
  using building = new DisposableStack();
  const [host, outside, c1, c2] = [0, 0, 0, 0].map(() => building.use(newNetns())) as [Netns, Netns, Netns, Netns];
  runShellInNetns(
    host,
    WITHOUT_BRIDGE_NETFILTER,
    "echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter; echo 0 >/proc/sys/net/ipv4/conf/default/rp_filter",
  );
  connectOutside(host, outside);
  runIp(c1, "link set lo up");
  runShellInNetns(host, "ip route add default via 192.0.2.2; ip -6 route add default via 2001:db8::2");
  const directory = mkdtempSync(join(tmpdir(), "cni-doctor-"));
  building.defer(() => rmSync(directory, { recursive: true }));
  const ipam = { ...IPAM, ranges, routes: isInternal ? [] : routes, dataDir: join(directory, "networks") };
  const text = JSON.stringify({
    cniVersion: "1.1.0",
    name: "web",
    plugins: [
      { ...main, ...isInternal && { isGateway: false, ipMasq: false }, ipam },
      { type: "portmap", capabilities: { portMappings: true } },
      ...hasFirewall ? [{ type: "firewall" }] : [],
      ...plugins,
    ],
  });
  const network = parseNetworkConfigList(text);
  const log: string[] = [];
  const options = {
    env: {},
    pluginDirectories: [],
    cacheDirectory: directory,
    log: (line: string) => void log.push(line),
  };
  const runtime = new Runtime(options);
  const add = (netns: Pick<Netns, "path">, containerId: string, capabilityArgs = {}) =>
    host.run(() => runtime.add(network, { containerId, ifname: "eth0", netns: netns.path, capabilityArgs }));
  const result = add(c1, "c1", { portMappings });
  add(c2, "c2");
  const resources = building.move();
  const examine = (netnsPath?: string, looksOnly = true) => {
    const diagnosis = host.run(() =>
      withRuntimeContext(options, (context) => examineNetwork(context, network, { netnsPath, looksOnly }))
    );
    for (const { mend, mayDisconnect = false } of diagnosis.findings) {
      if (mend === undefined) continue;
      expectPasteable(mend);
      const removesFromHost = /^ip (-6 )?(addr|route|link) (del|flush)/.test(mend);
      if (removesFromHost) expect([mend, mayDisconnect]).toEqual([mend, true]);
    }
    return diagnosis;
  };
  return {
    host,
    c1,
    c2,
    outside,
    directory,
    log,
    serve: () => serveTcpAndUdp(c1, "c1"),
    add,
    get port() {
      return result.interfaces!.findLast(({ sandbox }) => !sandbox)!.name;
    },
    examine,
    withSubject: (use) =>
      host.run<Finding[]>(() =>
        withRuntimeContext(options, (context) => {
          using subjectResources = new DisposableStack();
          return use(lookUpSubject(context, network, undefined, subjectResources));
        })
      ),
    broken: () => examine().findings.filter(isBroken).map(({ what }) => what),
    fix: () => {
      // Some changes take effect only after others: routes need addresses, addresses need links.
      for (;;) {
        const { findings } = examine();
        const repairs = findings.flatMap(({ repair }) => repair ?? []);
        if (repairs.length === 0) return findings.filter(isBroken).map(({ what }) => what);
        host.run(() =>
          withRuntimeContext(options, (context) => repairs.forEach((repair) => applyRepair(context, repair)))
        );
      }
    },
    shell: (...lines) => void runShellInNetns(host, ...lines),
    [Symbol.dispose]: () => resources.dispose(),
  };
}

/** A host for all tests of a file, with services on the published ports. Both go after the last test. */
export async function useDoctorHost(): Promise<DoctorHost> {
  const doctorHost = newDoctorHost();
  const services = await doctorHost.serve();
  afterAll(() => {
    services[Symbol.dispose]();
    doctorHost[Symbol.dispose]();
  });
  return doctorHost;
}

/** Nothing is left for a person to fill in, and its first word is a program or begins a loop. */
function expectPasteable(command: string): void {
  const program = /^[\w./-]+/.exec(command)?.[0] ?? "";
  expect(`${command}: ${Bun.which(program) ?? program}`).toMatch(/: (\/.*|cni|kubectl|for)$/);
  expect(command).not.toMatch(/\b(ADDRESS|NETWORK|NAME|ID|NETNS|FILE|DIR|LINK)\b|…|\.\.\./);
  const { exitCode, stderr } = Bun.spawnSync(["sh", "-n", "-c", command], { stderr: "pipe" });
  expect([command, exitCode, `${stderr}`]).toEqual([command, 0, ""]);
}

export const handleOfDrop = (host: Netns) =>
  /(?:drop|reject).* # handle (\d+)/.exec(runInNetns(host, "nft", "-a", "list", "ruleset"))?.[1];
