/** Host ports of containers whose rules were removed: they are given to nobody else. Real flushes, real traffic. */
import { expect } from "bun:test";
import { mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { loadPlugins } from "../plugins/registry.ts";
import { ENGINE_ENV, fullProgramLink } from "../testing/binary.ts";
import { type HealedHost, healTest } from "../testing/healed_host.ts";
import { newNetns } from "../testing/netns.ts";
import { requestTcp, serveTcp } from "../testing/traffic.ts";
import { CniError } from "../spec/error.ts";
import type { NetworkConfigList } from "../spec/network_config_list.ts";

await loadPlugins();

const FLUSHES = ["flush ruleset", "delete table inet cni", "flush map inet cni hostports4; flush set inet cni owners"];
const TAKEN = 'host port 8080/tcp: container "c1" (network "web", interface "eth0") has it';
const LACKING =
  'portmap: The ruleset lacks published ports, such as those of container "c1" (network "web", interface "eth0"); ' +
  "put them back: cni run restore";

/** Publishes a port as `cni run add` does. @returns what it said, or why it failed */
function publish(
  { host, runtime }: HealedHost,
  list: NetworkConfigList,
  containerId: string,
  netns: Netns,
  port: { readonly hostPort: number; readonly hostIP?: string },
): string {
  const capabilityArgs = { portMappings: [{ containerPort: 80, ...port }] };
  const log: string[] = [];
  try {
    host.run(() =>
      void runtime("cache", log).add(list, { containerId, ifname: "eth0", netns: netns.path, capabilityArgs })
    );
    return log.join("\n");
  } catch (error) {
    return CniError.from(error).message;
  }
}

for (const flush of FLUSHES) {
  healTest(`after "${flush}", a port stays that of the container that published it`, async (healed) => {
    using resources = new DisposableStack();
    const { attach, host, nft, runtime, network } = healed;
    const first = attach("c1");
    using _server = serveTcp(first, "c1", 80);
    const list = network("other");
    const add = (id: string, hostPort: number, hostIP?: string) =>
      publish(healed, list, id, resources.use(newNetns()), { hostPort, ...hostIP !== undefined && { hostIP } });
    nft(flush);
    expect(add("c2", 8080)).toContain(TAKEN);
    // The table is there by now, and not empty.
    expect(add("c3", 9090)).toBe(LACKING);
    expect(add("c4", 8080)).toContain(TAKEN);
    expect(add("c5", 8080, "10.7.0.1")).toContain('10.7.0.1:8080/tcp: container "c1" (network "web"');
    host.run(() => runtime().restore());
    expect(await requestTcp(host, "10.7.0.1", 8080)).toStartWith("c1 ");
    expect(add("c6", 8080)).toContain(TAKEN);
    expect(add("c7", 9091)).toBe("");
    expect(nft("list set inet cni owners")).toContain("published-ports-are-complete");
    // Of those that are gone, nobody asks.
    nft(flush);
    host.run(() => runtime().del("web", { containerId: "c1", ifname: "eth0" }));
    expect(add("c8", 8080)).not.toContain("Cannot");
  });
}

healTest("a container whose namespace or host end is gone has no port any more", (healed) => {
  using resources = new DisposableStack();
  const { attach, nft, network, directory, shell } = healed;
  for (const id of ["c1", "c2"]) attach(id);
  const path = (id: string) => join(directory, "cache/results", `web-${id}-eth0`);
  const entry = JSON.parse(readFileSync(path("c1"), "utf8"));
  writeFileSync(path("c1"), JSON.stringify({ ...entry, netns: "/run/netns/gone" }));
  const { result } = JSON.parse(readFileSync(path("c2"), "utf8"));
  const veth = result.interfaces.find(({ name }: { name: string }) => name.startsWith("veth")).name;
  shell(`ip link del ${veth}`);
  nft("flush ruleset");
  const list = network("other");
  for (const [id, hostPort] of [["c3", 8080], ["c4", 8081]] as const) {
    expect(publish(healed, list, id, resources.use(newNetns()), { hostPort })).toBe("");
  }
});

/** libcni's directory is the given one, and its files have what libcni writes. */
const AS_LIBCNI = 'mount -t tmpfs none /var/lib && mkdir /var/lib/cni && mount --bind "$0" /var/lib/cni && exec "$@"';

healTest("an engine's plugin asks the results of engines", (healed) => {
  const { attach, nft, host, directory } = healed;
  attach("c1");
  attach("c2");
  for (const id of ["c1", "c2"]) {
    const path = join(directory, "cache/results", `web-${id}-eth0`);
    const { bootId: _, netnsCookie: __, ...entry } = JSON.parse(readFileSync(path, "utf8"));
    writeFileSync(path, JSON.stringify(entry));
  }
  mkdirSync(join(directory, "away"));
  const path = join(directory, "cache/results/web-c2-eth0");
  const { result, netns } = JSON.parse(readFileSync(path, "utf8"));
  // Its ADD has not ended.
  renameSync(path, join(directory, "away/c2"));
  const portmap = (verb: string, hostPort: number) => {
    const env = { ...ENGINE_ENV, CNI_COMMAND: verb, CNI_CONTAINERID: "c2", CNI_NETNS: netns };
    const runtimeConfig = { portMappings: [{ hostPort, containerPort: 80, protocol: "tcp" }] };
    const stdin = JSON.stringify({
      cniVersion: "1.1.0",
      name: "web",
      type: "portmap",
      runtimeConfig,
      prevResult: result,
    });
    const { stdout, stderr } = host.run(() =>
      Bun.spawnSync(["unshare", "-m", "sh", "-c", AS_LIBCNI, join(directory, "cache"), fullProgramLink("portmap")], {
        env,
        stdin: Buffer.from(stdin),
        stderr: "pipe",
      })
    );
    return [JSON.parse(stdout.toString() || "{}").msg ?? "", stderr.toString().trimEnd()];
  };
  nft("flush ruleset");
  expect(portmap("ADD", 8080)).toEqual([expect.stringContaining(TAKEN), ""]);
  expect(portmap("ADD", 9090)).toEqual(["", LACKING]);
  expect(portmap("DEL", 9090)).toEqual(["", ""]);
  expect(portmap("ADD", 8080)).toEqual([expect.stringContaining(TAKEN), ""]);
});
