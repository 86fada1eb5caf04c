/** Answers beside those of the reference plugin, which starts a dnsmasq, for the same containers. */
import { expect } from "bun:test";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../../ffi/netns/netns.ts";
import { testWith } from "../../testing/binary.ts";
import { type BridgeContainer, type BridgeNetwork, newBridgeNetwork } from "../../testing/bridge_network.ts";
import { dig, newNameSite, startNameServer } from "../../testing/dnsname.ts";
import { until } from "../../testing/netns.ts";
import tested from "./plugin.ts";

const REFERENCE = "/usr/lib/cni/dnsname";
const QUESTIONS = [
  ...["web", "WEB", "db", "web.dns.podman", "Db.dns.podman", "absent.dns.podman", "x.web.dns.podman"],
  ...["www", "www.dns.podman", "store", "STORE.dns.podman"],
].flatMap((name) => [[name], [name, "AAAA"], [name, "+tcp"]]).concat([
  ["-x", "10.88.0.2"],
  ["-x", "fd88::3"],
  ["web.dns.podman", "MX"],
]);

/** Names, status and values, without lifetimes. */
const askAll = (netns: Netns): unknown[] =>
  QUESTIONS.map((question) => {
    const { status, answers = [] } = dig(netns, "@10.88.0.1", ...question) ?? {};
    return [
      question.join(" "),
      status,
      answers.map((line) => line.split(" ").filter((_, i) => i !== 1).join(" ")).sort(),
    ];
  });

interface Attached {
  readonly container: BridgeContainer;
  readonly name: string;
  readonly aliases: readonly string[];
}

const configOf = ({ container, aliases }: Attached): object => ({
  ...{ cniVersion: "0.4.0", name: "web", type: "dnsname", domainName: "dns.podman" },
  runtimeConfig: { aliases: { web: aliases } },
  prevResult: {
    ...{ cniVersion: "0.4.0", interfaces: container.result.interfaces },
    ips: container.result.ips!.map((ip) => ({ ...ip, version: ip.address.includes(":") ? "6" : "4" })),
  },
});

function callReference(network: BridgeNetwork, directory: string, command: string, attached: Attached): unknown {
  const { exitCode, stdout, stderr } = network.host.run(() =>
    Bun.spawnSync([REFERENCE], {
      env: {
        PATH: process.env.PATH,
        XDG_RUNTIME_DIR: directory,
        ...{ CNI_COMMAND: command, CNI_CONTAINERID: attached.name, CNI_IFNAME: "eth0", CNI_PATH: "/usr/lib/cni" },
        CNI_NETNS: attached.container.netns.path,
        CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAME=${attached.name}`,
      },
      stdin: Buffer.from(JSON.stringify(configOf(attached))),
    })
  );
  if (exitCode !== 0) throw new Error(`${command} of the reference failed: ${stdout} ${stderr}`);
  return stdout.toString() === "" ? undefined : JSON.parse(stdout.toString());
}

testWith([REFERENCE, "dnsmasq", "dig", "iptables"], "answers are those of the reference plugin", async () => {
  using resources = new DisposableStack();
  const network = newBridgeNetwork(resources);
  using site = newNameSite();
  const all: Attached[] = [
    { container: network.container(2), name: "web", aliases: ["www"] },
    { container: network.container(3), name: "db", aliases: ["Store"] },
  ];
  const directory = join(site.directory, "reference");
  mkdirSync(directory);
  const theirs = all.map((attached) => callReference(network, directory, "ADD", attached));
  const pidFile = join(directory, "containers/cni/dnsname/web/pidfile");
  const pid = Number(readFileSync(pidFile, "utf8"));
  resources.defer(() => {
    if (isRunning(pid)) process.kill(pid, "SIGKILL");
  });
  await until(() => dig(all[0]!.container.netns, "@10.88.0.1", "+timeout=1", "db.dns.podman")?.answers.length === 1);
  const expected = askAll(all[0]!.container.netns);
  for (const attached of all) callReference(network, directory, "DEL", attached);
  await until(() => !isRunning(pid));

  using _server = startNameServer(network.host, site.paths);
  const ours = all.map((attached) =>
    network.call(tested, "ADD", { ...configOf(attached), ...site.config, domainName: "dns.podman" }, {
      ...{ container: attached.container, containerId: attached.name, prevResult: null },
      env: { CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAME=${attached.name}` },
    })
  );
  expect(askAll(all[0]!.container.netns)).toEqual(expected);
  expect(ours).toEqual(theirs);
});

function isRunning(pid: number): boolean {
  try {
    return !readFileSync(`/proc/${pid}/stat`, "utf8").includes(") Z ");
  } catch {
    return false;
  }
}
