/** `cni run add` where an earlier attachment of the same name was never detached. */
import { afterAll, expect, test } from "bun:test";
import { readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../ffi/netns/netns.ts";
import { netnsTest, newNamespaces, runInNetns } from "../testing/netns.ts";
import { newCliSandboxes } from "../testing/cli.ts";
import { straced } from "../testing/strace.ts";

const { root, bench } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

let paths = 0;

/** A path that leads to one namespace and later to another, as one under /run/netns does. */
function newPath() {
  const path = join(root, `netns${paths++}`);
  return {
    path,
    lead: (to: Netns) => {
      rmSync(path, { force: true });
      symlinkSync(to.path, path);
    },
    remove: () => rmSync(path),
    leaveFile: () => {
      rmSync(path);
      writeFileSync(path, "");
    },
  };
}

const addressesOf = (netns: Netns): string[] =>
  runInNetns(netns, "ip", "-o", "-4", "addr").match(/10\.9\.0\.[0-9]+(?=\/)/g) ?? [];

netnsTest("cni run add replaces an attachment whose path leads to another namespace by now", ({ host, container }) => {
  const { run, network, entries, reservations } = bench(host);
  network("web");
  const { path, lead } = newPath();
  lead(container);
  expect(run(`add web ${path}`).exitCode).toBe(0);
  using second = createNetns();
  lead(second);
  // The container lives, only its path is taken: nothing of it may be lost.
  const refused = run(`add web ${path}`);
  expect([refused.exitCode, refused.stdout]).toEqual([1, ""]);
  expect(refused.stderr).toContain("attached already");
  expect(addressesOf(container)).toEqual(["10.9.0.2"]);
  // What a restart, or the end of the namespace, does to it.
  runInNetns(container, "ip", "link", "del", "eth0");
  const added = run(`add web ${path}`);
  expect(added.stderr).toMatch(
    /^cni: Removing what is left of "eth0" of container "cnitool-.*" on network "web" first: namespace ".*" is another one now\n$/,
  );
  expect(JSON.parse(added.stdout).ips).toHaveLength(1);
  expect(entries()).toHaveLength(1);
  expect(reservations("web")).toEqual(addressesOf(second));
  expect(run(`check web ${path}`).exitCode).toBe(0);
});

for (const verb of ["gc web --valid c2/eth0", "del web --container-id c1", "del web PATH --container-id c1"]) {
  netnsTest(`cni run ${verb} leaves alone who has the path of c1 by now`, ({ host, container }) => {
    const { run, network, conf, entries, reservations } = bench(host);
    network("web");
    const file = join(conf, "web.conflist");
    const { plugins: [bridge], ...list } = JSON.parse(readFileSync(file, "utf8"));
    const tuning = { type: "tuning", mtu: 1400, dataDir: join(conf, "tuning") };
    const plugins = [{ type: "loopback" }, { ...bridge, isDefaultGateway: true }, { type: "sbr" }, tuning];
    writeFileSync(file, JSON.stringify({ ...list, plugins }));
    const { path, lead } = newPath();
    {
      using first = createNetns();
      lead(first);
      expect(run(`add web ${path} --container-id c1`)).toMatchObject({ exitCode: 0 });
      // As the end of the namespace does, which the kernel takes its time for.
      runInNetns(first, "ip", "link", "del", "eth0");
    }
    lead(container);
    expect(run(`add web ${path} --container-id c2`)).toMatchObject({ exitCode: 0 });
    const states = JSON.parse(run("list --json").stdout).map(({ state }: { state: string }) => state);
    expect(states).toEqual(["gone", "attached"]);

    const stderr = verb.includes("PATH")
      ? `cni: Removing "eth0" of container "c1" on network "web" without its namespace, which is not at "${path}"\n`
      : verb.startsWith("gc")
      ? 'cni: Removed "eth0" of container "c1" on network "web"\n'
      : "";
    expect(run(verb.replace("PATH", path))).toEqual({ exitCode: 0, stdout: "", stderr });
    expect(entries()).toEqual(["web-c2-eth0"]);
    expect(reservations("web")).toEqual(addressesOf(container));
    expect(run(`check web ${path} --container-id c2`)).toMatchObject({ exitCode: 0, stderr: "" });
    expect(run("del web --container-id c2")).toMatchObject({ exitCode: 0 });
    expect(addressesOf(container)).toEqual([]);
  });
}

netnsTest("cni run del with a wrong namespace finds that of the attachment", ({ host, container }) => {
  const { run, network, reservations } = bench(host);
  network("web");
  using another = createNetns();
  for (const wrong of [another.path, join(root, "absent")]) {
    expect(run(`add web ${container.path} --container-id c1`)).toMatchObject({ exitCode: 0 });
    // Its address would be given to the next one.
    expect(run(`del web ${wrong} --container-id c1`)).toEqual({
      exitCode: 0,
      stdout: "",
      stderr:
        `cni: Removing "eth0" of container "c1" on network "web" in "${container.path}", where it was attached: ` +
        `"${wrong}" is not its namespace\n`,
    });
    expect([addressesOf(container), reservations("web")]).toEqual([[], []]);
  }
});

for (const verb of ["gc web --all", "add web PATH --container-id c1"]) {
  netnsTest(`cni run ${verb} removes what a killed ADD left, whose path is another's by now`, ({ host, container }) => {
    const { run, network, conf, plugin, entries, reservations } = bench(host);
    network("web");
    const file = join(conf, "web.conflist");
    const { plugins: [bridge], ...list } = JSON.parse(readFileSync(file, "utf8"));
    writeFileSync(file, JSON.stringify({ ...list, plugins: [bridge, { type: "killer" }] }));
    plugin("killer", "[ $CNI_COMMAND != ADD ] || kill -9 $PPID");
    const { path, lead } = newPath();
    const add = `add web ${path} --container-id c1`;
    {
      using first = createNetns();
      lead(first);
      expect(run(add).exitCode).not.toBe(0);
      expect([entries(), reservations("web")]).toEqual([["web-c1-eth0"], ["10.9.0.2"]]);
      // It may live as long as its namespace may be there.
      expect(run(add)).toMatchObject({ exitCode: 1, stderr: expect.stringContaining("an ADD of it has not ended") });
      const gc = run("gc web --valid c2/eth0 --ignore-unknown");
      expect([gc.exitCode, gc.stderr]).toEqual([1, expect.stringContaining("may live")]);
    }
    lead(container);
    plugin("killer", `cat >/dev/null; echo '{"cniVersion":"1.1.0"}'`);
    expect(JSON.parse(run("list --json").stdout)).toMatchObject([{ state: "gone" }]);
    expect(run(verb.replace("PATH", path))).toMatchObject({ exitCode: 0 });
    expect(reservations("web")).toEqual(addressesOf(container));
    expect(entries()).toHaveLength(addressesOf(container).length);
  });
}

netnsTest("cni run add replaces an attachment whose namespace is gone", ({ host, container }) => {
  const { run, network, reservations } = bench(host);
  network("web");
  const old = newPath();
  for (const [end, reason] of [[old.remove, "is gone"], [old.leaveFile, "is no network namespace any more"]] as const) {
    using first = createNetns();
    old.lead(first);
    expect(run(`add web ${old.path} --container-id c1`).exitCode).toBe(0);
    end();
    const added = run(`add web ${container.path} --container-id c1`);
    expect([added.exitCode, added.stderr]).toEqual([0, expect.stringContaining(reason)]);
    expect(reservations("web")).toEqual(addressesOf(container));
    expect(run("del web --container-id c1").exitCode).toBe(0);
  }
});

netnsTest(
  "cni run removes an attachment whose path leads to the host by now, and takes nothing of the host's",
  ({ host }) => {
    const { run, network, entries, reservations } = bench(host);
    network("web");
    runInNetns(host, ..."ip link add eth0 type veth peer name up0".split(" "));
    for (const command of ["del web --container-id c1", "gc web --all"]) {
      const { path, lead } = newPath();
      using container = createNetns();
      lead(container);
      expect(run(`add web ${path} --container-id c1`).exitCode).toBe(0);
      lead(host);
      const removed = run(command);
      expect([removed.exitCode, removed.stdout]).toEqual([0, ""]);
      expect(entries()).toEqual([]);
      expect(reservations("web")).toEqual([]);
      expect(addressesOf(container)).toEqual([]);
      expect(runInNetns(host, "ip", "-o", "link").match(/(?<=^\d+: )[^:@]+/gm)?.sort()).toEqual([
        "br9",
        "eth0",
        "lo",
        "up0",
      ]);
    }
  },
);

netnsTest("cni run add recovers from a file of which a power cut left nothing usable", ({ host, container }) => {
  const { run, network, entries, cache, reservations } = bench(host);
  network("web");
  const add = `add web ${container.path} --container-id c1`;
  expect(run(add).exitCode).toBe(0);
  const path = join(cache, "results", entries()[0]!);
  for (const damaged of ["", '{"kind":"cniCac', "\0\0\0\0"]) {
    writeFileSync(path, damaged);
    // As long as the interface is there, the container may be attached.
    expect(run(add)).toMatchObject({ exitCode: 1, stderr: expect.stringContaining('has an interface "eth0" already') });
    expect(addressesOf(container)).toEqual(reservations("web"));
    runInNetns(container, "ip", "link", "del", "eth0");
    const added = run(add);
    expect([added.exitCode, added.stderr]).toEqual([
      0,
      expect.stringContaining(`Cannot use cached attachment "${path}"`),
    ]);
    expect(addressesOf(container)).toEqual(reservations("web"));
    expect(run(`check web ${container.path} --container-id c1`).exitCode).toBe(0);
  }
});

netnsTest(
  "cni run add leaves an attachment alone that it cannot put another in the place of",
  ({ host, container }) => {
    const { run, network, entries, reservations } = bench(host);
    network("web");
    const { path, lead, remove } = newPath();
    lead(container);
    expect(run(`add web ${path} --container-id c1`).exitCode).toBe(0);
    remove();
    expect(run(`add web ${path} --container-id c1`)).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining("there is no such file"),
    });
    expect(run(`add web ${root} --container-id c1`)).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining("this is no namespace"),
    });
    expect(entries()).toEqual(["web-c1-eth0"]);
    expect(reservations("web")).toEqual(addressesOf(container));
  },
);

netnsTest("cni run add fails, and remembers, when what is left cannot be removed", ({ host, container }) => {
  const { run, conf, plugin, entries } = bench(host);
  const script = (del: string) =>
    `cat >/dev/null; case $CNI_COMMAND in ADD) echo '{"cniVersion":"1.1.0"}';; DEL) ${del};; esac`;
  writeFileSync(join(conf, "web.conf"), '{"cniVersion":"1.1.0","name":"web","type":"moody"}');
  plugin("moody", script(`echo '{"code":11,"msg":"not now"}'; exit 1`));
  const { path, lead, remove } = newPath();
  lead(container);
  expect(run(`add web ${path} --container-id c1`).exitCode).toBe(0);
  remove();
  expect(run(`add web ${container.path} --container-id c1`)).toMatchObject({
    exitCode: 1,
    stdout: "",
    stderr: expect.stringContaining('plugin "moody" (DEL): not now'),
  });
  expect(entries()).toEqual(["web-c1-eth0"]);
  plugin("moody", script('[ -z "$CNI_NETNS" ] || exit 1'));
  expect(run(`add web ${container.path} --container-id c1`).exitCode).toBe(0);
});

test("of many that replace one attachment at once, one does, and none takes away what that one made", async () => {
  using namespaces = newNamespaces();
  const { host, container } = namespaces;
  const { run, network, command, reservations } = bench(host);
  network("web");
  const { path, lead, remove } = newPath();
  using first = createNetns();
  lead(first);
  expect(run(`add web ${path} --container-id c1`).exitCode).toBe(0);
  remove();
  const argv = command(`add web ${container.path} --container-id c1`);
  const children =
    host.run(() => ({ all: Array.from({ length: 5 }, () => Bun.spawn(argv, { stderr: "ignore" })) })).all;
  const codes = await Promise.all(children.map((child) => child.exited));
  expect(codes.sort()).toEqual([0, 1, 1, 1, 1]);
  expect(reservations("web")).toEqual(addressesOf(container));
  expect(run("check web --container-id c1 " + container.path)).toMatchObject({ exitCode: 0, stderr: "" });
});

netnsTest(
  "cni run gc fails if the disk does not give what is remembered, and a further one removes it",
  ({ host, container }) => {
    const { run, network, entries, cache, reservations } = bench(host);
    network("web");
    expect(run(`add web ${container.path} --container-id c1`).exitCode).toBe(0);
    const path = join(cache, "results", entries()[0]!);
    const wrapper = [...straced("/dev/null", "trace=openat", "inject=openat:error=EIO:when=1"), "-P", path];
    expect(run("gc web --all", { wrapper })).toMatchObject({
      exitCode: 1,
      stderr: expect.stringContaining(`"${path}"`),
    });
    expect(entries()).toHaveLength(1);
    expect(run("gc web --all").exitCode).toBe(0);
    expect([entries(), reservations("web")]).toEqual([[], []]);
  },
);
