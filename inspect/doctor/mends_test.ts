/** The commands and repairs of findings do what they name, and nothing else. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createNetns, type Netns } from "../../ffi/netns/netns.ts";
import * as link from "../../ffi/route/link.ts";
import { loadPlugins } from "../../plugins/registry.ts";
import { parseNetworkConfigList } from "../../spec/network_config_list.ts";
import { runInNetns, runIp, runShellInNetns, WITHOUT_DAD } from "../../testing/netns.ts";
import type { NetworkAttachment } from "../../runtime/attachments.ts";
import { Runtime, withRuntimeContext } from "../../runtime/runtime.ts";
import { type CheckFinding, examineNetwork, isBroken } from "./examine.ts";
import { reattachCommand } from "./reattach.ts";
import { applyRepair } from "./repair.ts";

const root = mkdtempSync(join(tmpdir(), "cni-mends-"));
const resources = new DisposableStack();
resources.defer(() => rmSync(root, { recursive: true }));
afterAll(() => resources.dispose());

const network = parseNetworkConfigList(JSON.stringify({
  cniVersion: "1.1.0",
  name: "web",
  plugins: [
    {
      ...{ type: "bridge", bridge: "br9", isGateway: true },
      ipam: { type: "host-local", subnet: "10.9.0.0/29", dataDir: join(root, "networks") },
    },
    { type: "portmap", capabilities: { portMappings: true } },
  ],
}));
const options = { env: {}, pluginDirectories: [], cacheDirectory: root, log: () => {} };

let host: Netns;
let container: Netns;
beforeAll(async () => {
  await loadPlugins();
  [host, container] = [resources.use(createNetns()), resources.use(createNetns())];
  runShellInNetns(host, WITHOUT_DAD, "ip link set lo up; ip addr add 192.0.2.1/32 dev lo");
  const capabilityArgs = { portMappings: [{ hostPort: 53, containerPort: 53, protocol: "udp" }] };
  const request = { containerId: "c1", ifname: "eth0", netns: container.path, capabilityArgs };
  host.run(() => new Runtime(options).add(network, request));
});

function findBroken(check: string): CheckFinding[] {
  const { findings } = host.run(() =>
    withRuntimeContext(options, (context) => examineNetwork(context, network, { looksOnly: true }))
  );
  return findings.filter((finding) => isBroken(finding) && finding.check === check);
}

function repair(findings: readonly CheckFinding[]): void {
  host.run(() =>
    withRuntimeContext(options, (context) => findings.forEach((each) => applyRepair(context, each.repair!)))
  );
}

const listQueries = () =>
  runInNetns(host, "conntrack", "-L", "-p", "udp").split("\n").flatMap((line) =>
    /sport=(40\d\d) /.exec(line)?.[1] ?? []
  )
    .sort();

test("the repair deletes stale conntrack entries of the host's address, and no others", () => {
  const insert = (port: number, [destination, target]: readonly [string, string], targetPort = 53) =>
    `conntrack -I -t 100 -p udp -s 198.51.100.2 -d ${destination} --sport ${port} --dport 53 ` +
    `-r ${target} -q 198.51.100.2 --reply-port-src ${targetPort} --reply-port-dst ${port}`;
  runShellInNetns(
    host,
    insert(4001, ["192.0.2.1", "10.9.0.5"]),
    insert(4002, ["192.0.2.1", "10.9.0.2"], 5353),
    insert(4003, ["192.0.2.1", "10.9.0.2"]),
    insert(4004, ["192.0.2.53", "192.0.2.53"]),
    insert(4005, ["192.0.2.53", "10.9.0.5"]),
  );
  const findings = () => findBroken("ports").filter(({ what }) => what.startsWith("stale"));
  expect(findings()).toMatchObject([{
    what: expect.stringContaining("2 entries send"),
    mend: "conntrack -D -f ipv4 -p udp --orig-dst 192.0.2.1 --orig-port-dst 53",
  }]);
  repair(findings());
  expect(listQueries()).toEqual(["4003", "4004", "4005"]);
  expect(findings()).toEqual([]);
});

/** What a person gets who pastes it. */
function paste(command: string) {
  const { stdout, stderr } = host.run<Bun.SyncSubprocess>(() =>
    Bun.spawnSync(["sh", "-c", command], { stderr: "pipe" })
  );
  return { stdout: `${stdout}`, stderr: `${stderr}` };
}

test.each(["x;id>&2;#", "'`id>&2`$(id)"])("no shell runs the name of a container's link: %s", (name) => {
  const netlink = container.route;
  const { index } = link.get(netlink, "eth0");
  runIp(container, "link set eth0 down");
  link.set(netlink, index, { name });
  const findings = findBroken("links");
  expect(findings.map(({ mend }) => paste(mend!))).toEqual([{ stdout: "", stderr: "" }]);
  expect(link.isUp(link.get(netlink, name))).toBe(true);
  runInNetns(container, "ip", "link", "set", name, "down");
  link.set(netlink, index, { name: "eth0" });
});

test("a shell reads the arguments of an attachment as they were", () => {
  const portMappings = [{ hostIP: "2001:db8::1", hostPort: 80, containerPort: 8080 }];
  const attachment = {
    ...{ network: "web", netns: "/srv/a b/net", containerId: "c1", ifname: "a;id" },
    args: [["K", "it's $(id)"]],
    capabilityArgs: { portMappings, names: ["it's"] },
  };
  const command = reattachCommand(attachment as unknown as NetworkAttachment);
  const target = "</srv/a b/net><--container-id><c1><--ifname><a;id>";
  expect(paste(`cni() { printf '<%s>' "$@"; echo; }; ${command}`)).toEqual({
    stdout: `<run><del><web>${target}\n<run><add><web>${target}<-p><[2001:db8::1]:80:8080>` +
      `<--cap-args><{"names":["it's"]}><--args><K=it's $(id)>\n`,
    stderr: "",
  });
});
