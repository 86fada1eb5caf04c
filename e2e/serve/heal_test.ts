/** The server's part that puts rules back, as the compiled binary starts it. What it does is in heal. */
import { expect, test } from "bun:test";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { finishedProcess, testWith } from "../../testing/binary.ts";
import { addDefaultRoute, newNamespaces, PATIENCE_MS, runInNetns, until } from "../../testing/netns.ts";
import { withoutMark } from "../../testing/ruleset.ts";
import { newServerSite } from "../../testing/server_site.ts";

const MARK = '"published-ports-are-complete"';

test("rules that are flushed come back, and those of a container that is detached do not", async () => {
  await using site = newServerSite();
  using namespaces = newNamespaces();
  const { host, container } = namespaces;
  addDefaultRoute(host);
  const [file, cache] = [join(site.directory, "web.conflist"), join(site.directory, "cache")];
  const ipam = { type: "host-local", dataDir: join(site.directory, "ipam"), ranges: [[{ subnet: "10.9.0.0/24" }]] };
  const plugins = [
    { type: "bridge", bridge: "br9", isGateway: true, ipMasq: true, ipam },
    { type: "portmap", capabilities: { portMappings: true } },
    { type: "firewall" },
  ];
  writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins }));
  const server = host.run(() => site.start({ heals: true, options: ["--cache-dir", cache, "--plugin-dir", ":"] }));
  await server.untilReady();
  const run = (verb: string, ...words: string[]) => {
    const command = [join(site.bin, "cni"), "run", verb, file, container.path, "--container-id", "c1", ...words];
    const env = { CNI_SOCKET: site.socket };
    const finished = host.run(() => finishedProcess(Bun.spawnSync([...command, "--cache-dir", cache], { env })));
    expect(finished).toMatchObject({ exitCode: 0 });
  };
  // Chains and elements may come back in another order. The mark comes back with the next ADD that found no port missing.
  const ruleset = () =>
    withoutMark(runInNetns(host, "nft", "list", "ruleset")).split("\n").map((line) =>
      line.replace(/elements = \{|,$| \}$/g, "").trim()
    ).sort().join("\n");
  run("add", "-p", "8080:80");
  const before = ruleset();
  expect(before).toContain("8080");

  // The first time, the process may only start: then it does not know who it was.
  for (let i = 0; i < 2; i++) {
    runInNetns(host, "nft", "flush", "ruleset");
    await until(() => ruleset() === before);
  }
  await until(() => server.log().includes('by "nft"'));
  expect(server.log()).toMatch(/^cni: Restored [^:]* after .*by "nft"/m);
  const { pid } = site.status().parts.find(({ name }) => name === "heal")!;
  expect(pid).toBeGreaterThan(0);

  run("del");
  run("add", "-p", "8080:80");
  expect(runInNetns(host, "nft", "list", "ruleset")).toContain(MARK);
  run("del");
  runInNetns(host, "nft", "flush", "ruleset");
  run("add");
  expect(ruleset()).not.toContain("8080");
});

/** As a node of kind: with processes, mounts and links of its own. What engines do is done by calls of the server. */
const NESTED_NODE = `
cd "$1"
mount -t tmpfs none /run
ip link set lo up
ip route add default dev lo
bin/cni-full serve --socket "$1/run/cni.sock" --cache-dir "$1/cache" --plugin-dir : >log 2>&1 &
server=$!
trap 'kill $server; wait $server' EXIT
until grep -q Listening log; do sleep 0.02; done
export CNI_SOCKET="$1/run/cni.sock" CNI_CONTAINERID=c1 CNI_IFNAME=eth0 CNI_NETNS=/run/netns/c1
bin/cni netns add c1
result=$(bin/cni run add ./web.conflist c1 --container-id c1 --cache-dir "$1/cache" -p 8080:80)
has() { nft list ruleset | grep -q "$1"; }
portmap() {
  ports='{ "portMappings": [{ "hostPort": 8080, "containerPort": 80 }] }'
  echo '{ "cniVersion": "1.1.0", "name": "web", "type": "portmap", "runtimeConfig":' "$ports", '"prevResult":' "$result" } |
    CNI_COMMAND=$1 bin/portmap >/dev/null
}
nft flush ruleset
until has 8080; do sleep 0.02; done
# By then it has read its own commit.
sleep "$2"
for i in 1 2 3 4 5; do
  portmap DEL
  sleep 0.2
  ! has 8080
  portmap ADD
  has 8080
done
nft flush ruleset
until has 8080; do sleep 0.02; done
sleep 0.4
# The end of a DEL that found nothing.
rm cache/results/web-c1-eth0
while has 'web c1 eth0'; do sleep 0.02; done
bin/cni serve --socket "$1/run/cni.sock" --status --json >status
`;

testWith(["unshare", "mount"], "in a process namespace of its own, it knows what this program does", async () => {
  await using site = newServerSite();
  const ipam = { type: "host-local", dataDir: join(site.directory, "ipam"), ranges: [[{ subnet: "10.9.0.0/24" }]] };
  const plugins = [
    { type: "bridge", bridge: "br9", isGateway: true, ipMasq: true, ipam },
    { type: "portmap", capabilities: { portMappings: true } },
  ];
  writeFileSync(
    join(site.directory, "web.conflist"),
    JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins }),
  );
  const namespaces = [
    "unshare",
    "--net",
    "--mount",
    "--pid",
    "--kill-child",
    "--mount-proc",
    "--propagation",
    "private",
  ];
  const env = { PATH: process.env.PATH, DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/nonexistent/bus" };
  const node = Bun.spawn([...namespaces, "sh", "-exc", NESTED_NODE, "sh", site.directory, `${PATIENCE_MS / 50_000}`], {
    env,
    stderr: "pipe",
  });
  const trace = await node.stderr.text();
  const read = (name: string) => readFileSync(join(site.directory, name), "utf8");
  expect([await node.exited, trace, read("log")]).toEqual([0, expect.anything(), expect.anything()]);
  const told = read("log").split("\n").filter((line) => /^cni: (?!Listening|heal)/.test(line));
  // The first time, the process may only start.
  // A later look that reads before a DEL of portmap alone may commit after it: the cached result is still there.
  const looked = told.filter((line) => !line.includes("after a command that ran meanwhile"));
  const causes = looked.map((line) =>
    /^cni: Restored .* after ("nft"|changes by "nft"|a time)/.exec(line)?.[1] ?? line
  );
  expect(causes.slice(1)).toEqual([
    'changes by "nft"',
    'cni: Removed rules of "eth0" of container "c1" on network "web" again: a DEL ran while they were restored',
  ]);
  expect(JSON.parse(read("status"))).toMatchObject({ served: 11, parts: [{}, {}, { name: "heal", starts: 1 }] });
});
