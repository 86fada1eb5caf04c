/** GC that is killed, and GC that others do not wait for. */
import { afterAll, expect, test } from "bun:test";
import { readdirSync, readFileSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns } from "../ffi/netns/netns.ts";
import { lockFile } from "../ffi/sys/lock.ts";
import { netnsTest, newNamespaces, runInNetns, until } from "../testing/netns.ts";
import { containerIdOfNetns } from "../runtime/container_id.ts";
import { createEntry } from "../runtime/cache.ts";
import { ENGINE_ENV, isReading, pluginLink, runPlugin } from "../testing/binary.ts";
import { newCliSandboxes } from "../testing/cli.ts";

const { root, bench: newBench } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

test("what a killed gc has not come to is removed by the next one", () => {
  using scope = new DisposableStack();
  const { host } = scope.use(newNamespaces());
  const bench = newBench(host);
  const containers = ["c1", "c2", "c3"];
  bench.plugin("fragile", '[ "$CNI_COMMAND" != ADD ] || exec echo "{}"');
  const ipam = { type: "host-local", dataDir: join(bench.cache, "../ipam"), ranges: [[{ subnet: "10.9.0.0/24" }]] };
  const own = { type: "bridge", bridge: "br9", ipMasq: true, ipam };
  const list = { cniVersion: "1.1.0", name: "web", plugins: [{ type: "fragile" }, own] };
  writeFileSync(join(bench.conf, "web.conflist"), JSON.stringify(list));
  for (const id of containers) {
    const { path } = scope.use(createNetns());
    expect(bench.run(`add web ${path} --container-id ${id}`)).toMatchObject({ exitCode: 0 });
  }
  expect(bench.reservations("web")).toHaveLength(3);

  // It is called last; by then the addresses are given back, and c1 is through.
  bench.plugin("fragile", '[ "$CNI_COMMAND $CNI_CONTAINERID" != "DEL c2" ] || kill -9 $PPID');
  expect(bench.run("gc web --all").exitCode).not.toBe(0);
  expect(bench.reservations("web")).toEqual([]);
  expect(bench.entries().sort()).toEqual(containers.map((id) => `web-${id}-eth0`));

  bench.plugin("fragile", `echo "$CNI_COMMAND $CNI_CONTAINERID" >>${bench.cache}/calls`);
  expect(bench.run("gc web --all")).toEqual({
    exitCode: 0,
    stdout: "",
    stderr: containers.map((id) => `cni: Removed "eth0" of container "${id}" on network "web"\n`).join(""),
  });
  expect(runInNetns(host, "cat", `${bench.cache}/calls`)).toBe("DEL c1\nDEL c2\nDEL c3\nGC \n");
  expect(bench.entries()).toEqual([]);
  expect(runInNetns(host, "ip", "-br", "link")).not.toContain("veth");
  expect(runInNetns(host, "nft", "list", "ruleset")).not.toContain("10.9.0.");
});

test("gc leaves alone who was attached after it was started, and could not be on its list", async () => {
  using scope = new DisposableStack();
  const { host } = scope.use(newNamespaces());
  const bench = newBench(host);
  bench.network("web");
  const attach = (id: string) => {
    const { path } = scope.use(createNetns());
    expect(bench.run(`add web ${path} --container-id ${id}`)).toMatchObject({ exitCode: 0 });
    return path;
  };
  attach("c1");
  // As an ADD does that goes on.
  const busy = lockFile(join(bench.cache, ".gc.lock"), { timeoutMs: 0, shared: true });
  const command = bench.command("gc web --all");
  const child = host.run(() => ({ gc: Bun.spawn(command, { stdin: "ignore", stdout: "pipe", stderr: "pipe" }) }));
  const { ino } = statSync(join(bench.cache, ".gc.lock"));
  while (!new RegExp(`-> FLOCK .*:${ino} `).test(readFileSync("/proc/locks", "utf8"))) await Bun.sleep(2);
  // It is let by, since gc cannot go on.
  const path = attach("c2");
  busy[Symbol.dispose]();
  expect(await child.gc.exited).toBe(0);
  expect(bench.entries()).toEqual(["web-c2-eth0"]);
  expect(bench.reservations("web")).toHaveLength(1);
  expect(bench.run(`check web ${path} --container-id c2`)).toMatchObject({ exitCode: 0 });
  expect(bench.run("gc web --all")).toMatchObject({ exitCode: 0 });
  expect(bench.entries()).toEqual([]);
});

netnsTest(
  "cni run gc takes nothing away when something is not known that is to stay, unless told to pass over it",
  ({ host, container }) => {
    const { run, network, entries } = newBench(host);
    network("web");
    for (const id of ["c1", "c2"]) {
      expect(run(`add web ${container.path} --container-id ${id} --ifname ${id}`).exitCode).toBe(0);
    }
    for (const words of ["--valid=", "--valid /c1", "--valid=c1/c1/c1"]) {
      const { exitCode, stderr } = run(`gc web ${words}`);
      expect([exitCode, stderr]).toEqual([2, expect.stringContaining("--valid")]);
    }
    const refusal = {
      exitCode: 2,
      stdout: "",
      stderr: 'cni: Cannot clean up network "web": "c22/c2" is not remembered; did you mean "c2"? ' +
        '(--ignore-unknown accepts such names, and keeps them too)\n     see "cni run gc --help"\n',
    };
    expect(run("gc web --valid c1/c1 --valid c22/c2")).toEqual(refusal);
    expect(run("derive web --command GC --valid c1/c1 --valid c22/c2")).toEqual({
      ...refusal,
      stderr: refusal.stderr.replace("run gc", "run derive"),
    });
    expect(run("gc web --ignore-unknown --valid blue --valid c1/eth0")).toEqual({
      exitCode: 1,
      stdout: "",
      stderr: 'cni: Cleaning up network "web": "blue/eth0" is not remembered\n' +
        'cni: Cleaning up network "web": "c1/eth0" is not remembered; "c1" has "c1" there\n' +
        'cni: Cannot clean up network "web": --valid names no remembered attachment, ' +
        "and 2 that may live would be detached\n" +
        '     see their ids with "cni run list web"; to keep none of them: --all\n',
    });
    expect(entries().sort()).toEqual(["web-c1-c1", "web-c2-c2"]);
    expect(run("gc web --ignore-unknown --valid blue --valid c1/c1")).toEqual({
      exitCode: 0,
      stdout: "",
      stderr: 'cni: Cleaning up network "web": "blue/eth0" is not remembered\n' +
        'cni: Removed "c2" of container "c2" on network "web"\n',
    });
    expect(entries()).toEqual(["web-c1-c1"]);
  },
);

netnsTest(
  "cni run gc knows a container by the name of its namespace, and detaches the dead for anybody",
  ({ host }) => {
    const { run, network, entries, cache } = newBench(host);
    network("web");
    const idOf = (name: string) => containerIdOfNetns(`/run/netns/${name}`);
    for (const name of ["cni-gc-one", "cni-gc-other"]) {
      const key = { network: "web", containerId: idOf(name), ifname: "eth0" };
      createEntry(cache, { ...key, config: "", netns: `/run/netns/${name}`, args: [], capabilityArgs: {} });
    }
    const [{ request }] = JSON.parse(run("derive web --command GC --valid cni-gc-one").stdout);
    expect(request["cni.dev/valid-attachments"]).toEqual([{ containerID: idOf("cni-gc-one"), ifname: "eth0" }]);
    expect(run("gc web --valid cni-gc-one")).toEqual({
      exitCode: 0,
      stdout: "",
      stderr: `cni: Removed "eth0" of container "${idOf("cni-gc-other")}" on network "web"\n`,
    });
    expect(entries()).toEqual([`web-${idOf("cni-gc-one")}-eth0`]);
    // Its namespace is gone, so that nobody is cut off.
    expect(run("gc web --valid c1 --ignore-unknown")).toMatchObject({
      exitCode: 0,
      stderr: expect.stringContaining('"c1/eth0"'),
    });
    expect(entries()).toEqual([]);
  },
);

netnsTest("cni run takes the name of a namespace that is there for no slip", ({ host }) => {
  const { run, network, cache } = newBench(host);
  network("web");
  const key = { network: "web", containerId: "c2", ifname: "eth0" };
  createEntry(cache, { ...key, config: "", netns: "/run/netns/web2", args: [], capabilityArgs: {} });
  const script = 'mount -t tmpfs tmpfs /run && mkdir /run/netns && : >/run/netns/web1 && exec "$@"';
  const wrapper = ["unshare", "-m", "sh", "-c", script, "sh"];
  for (const [name, hint] of [["web1", ""], ["web3", '; did you mean "web2"?']]) {
    expect(run(`gc web --valid ${name}`, { wrapper }).stderr).toContain(`"${name}/eth0" is not remembered${hint} (`);
    for (const words of [name, `--container-id ${name}`]) {
      expect(run(`del web ${words}`, { wrapper }).stderr).toEndWith(`called anyway${hint}\n`);
    }
  }
});

netnsTest("cni run gc leaves all whom a name may mean, also by a file that makes no sense", ({ host }) => {
  const { run, network, entries, cache } = newBench(host);
  network("web");
  const attach = (containerId: string, netns: string, ifname = "eth0") => {
    createEntry(cache, { network: "web", containerId, ifname, config: "", netns, args: [], capabilityArgs: {} });
    return `web-${containerId}-${ifname}`;
  };
  const path = "/run/netns/cni-gc-a";
  const [short, long] = [path, `/var${path}`].map(containerIdOfNetns) as [string, string];
  const meant = [
    attach("cni-gc-a", "/run/netns/cni-gc-b"),
    attach("pod1", path),
    attach("pod2", `/var${path}`),
    attach(long, `/var${path}`),
    attach(short, path),
  ];
  // As a power cut leaves it.
  writeFileSync(join(cache, "results", `web-${short}-eth0`), "");
  attach("pod1", path, "eth1");
  attach("pod3", "/run/netns/cni-gc-b");
  const [{ request }] = JSON.parse(run("derive web --command GC --valid cni-gc-a").stdout);
  const ids = request["cni.dev/valid-attachments"].map(({ containerID }: { containerID: string }) => containerID);
  expect(ids.sort()).toEqual(["cni-gc-a", short, long, "pod1", "pod2"].sort());
  expect(run("gc web --valid cni-gc-a")).toMatchObject({ exitCode: 0, stdout: "" });
  expect(entries().sort()).toEqual(meant.sort());
});

test("a plugin's GC spares the address that was given since its process was started, and not what is of a time to come", async () => {
  const dataDir = join(root, "ipam");
  const ipam = { type: "host-local", dataDir, ranges: [[{ subnet: "10.9.0.0/24" }]] };
  const config = JSON.stringify({ cniVersion: "1.1.0", name: "web", ipam, "cni.dev/valid-attachments": [] });
  const attach = (id: string) => {
    const env = { CNI_COMMAND: "ADD", CNI_CONTAINERID: id };
    expect(runPlugin("host-local", { env, stdin: config })).toMatchObject({ exitCode: 0 });
  };
  attach("c1");
  utimesSync(join(dataDir, "web/10.9.0.2"), 4e9, 4e9);
  const env = { ...ENGINE_ENV, CNI_COMMAND: "GC" };
  const collector = Bun.spawn([pluginLink("host-local")], { env, stdin: "pipe", stdout: "pipe", stderr: "pipe" });
  await until(() => isReading(collector.pid));
  // Times of files are those of the last tick.
  await Bun.sleep(20);
  attach("c2");
  collector.stdin.write(config);
  collector.stdin.end();
  expect([await collector.exited, await new Response(collector.stderr).text()]).toEqual([
    0,
    'host-local: Removed the reservation of 10.9.0.2 by container "c1", interface "eth0"\n',
  ]);
  expect(readdirSync(join(dataDir, "web")).filter((name) => name.startsWith("10."))).toEqual(["10.9.0.3"]);
});

netnsTest(
  "cni run gc says what plugins removed of attachments that nothing is remembered of",
  ({ host, container }) => {
    const { run, network, cache, conf } = newBench(host);
    network("web");
    const file = join(conf, "web.conflist");
    const { plugins: [bridge], ...list } = JSON.parse(readFileSync(file, "utf8"));
    writeFileSync(file, JSON.stringify({ ...list, plugins: [{ ...bridge, ipMasq: true }] }));
    expect(run(`add web ${container.path} --container-id c1`)).toMatchObject({ exitCode: 0 });
    rmSync(join(cache, "results"), { recursive: true });
    const owner = 'container "c1" (network "web", interface "eth0")';
    expect(run("gc web --all")).toEqual({
      exitCode: 0,
      stdout: "",
      stderr: `bridge: Removing masquerading of ${owner}\nbridge: Removing the veth pair of ${owner}\n` +
        'host-local: Removed the reservation of 10.9.0.2 by container "c1", interface "eth0"\n',
    });
    expect(run("gc web --all")).toEqual({ exitCode: 0, stdout: "", stderr: "" });
  },
);
