/**
 * The compiled binary after a restart of the machine: another boot id, none of the links and rules, and of the namespaces their paths at
 * most. What the boot before left is told from what lives, and goes; what lives stays.
 */
import { describe, expect } from "bun:test";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../ffi/netns/netns.ts";
import { useDirectory } from "../testing/directory.ts";
import { addDefaultRoute, runInNetns } from "../testing/netns.ts";
import { CNI_UNDER_TEST, ENGINE_ENV, type FinishedProcess, pluginLink, testWith } from "../testing/binary.ts";

const root = useDirectory("cni-reboot-");

const PROGRAMS = ["unshare", "mount", "ip", "nft"];
const BIND = 'mount --bind "$0" /proc/sys/kernel/random/boot_id && exec "$@"';
/** As the kernel has them; the one of the machine that runs the test is not among them. */
const BOOTS = {
  one: "11111111-1111-4111-8111-111111111111\n",
  two: "22222222-2222-4222-8222-222222222222\n",
  none: "",
};
const REFERENCE = "/usr/lib/cni";

/** A machine that is started again and again: what is in its directory stays. */
interface Machine {
  readonly host: Netns;
  readonly reservations: string;
  readonly entries: () => string[];
  start(boot: keyof typeof BOOTS): void;
  cni(words: string): FinishedProcess;
  /** A plugin as engines call it. */
  plugin(
    command: string,
    type: string,
    id: string,
    more?: { readonly netns?: string; readonly prevResult?: unknown },
  ): FinishedProcess;
  /** `10.9.0.2 c1` for each reservation. */
  reserved(): string[];
  /** A path that leads to a new namespace. */
  container(name: string): { readonly netns: Netns; readonly path: string };
}

function newMachine(scope: DisposableStack): Machine {
  const directory = mkdtempSync(join(root, "machine-"));
  const [conf, cache, dataDir] = ["conf", "cache", "ipam"].map((name) => join(directory, name)) as [
    string,
    string,
    string,
  ];
  mkdirSync(conf);
  for (const [name, text] of Object.entries(BOOTS)) writeFileSync(join(directory, name), text);
  const own = {
    type: "bridge",
    bridge: "br9",
    isGateway: true,
    ipMasq: true,
    ipam: { type: "host-local", dataDir, ranges: [[{ subnet: "10.9.0.0/29" }]] },
  };
  writeFileSync(join(conf, "web.conflist"), JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [own] }));
  let host: Netns | undefined;
  let boot: keyof typeof BOOTS = "one";
  const run = (words: readonly string[], env: Record<string, string>, stdin = ""): FinishedProcess => {
    const { exitCode, stdout, stderr } = host!.run(() =>
      Bun.spawnSync(["unshare", "-m", "sh", "-c", BIND, join(directory, boot), ...words], {
        env: { ...ENGINE_ENV, ...env },
        stdin: Buffer.from(stdin),
      })
    );
    return { exitCode, stdout: stdout.toString(), stderr: stderr.toString() };
  };
  const reservations = join(dataDir, "web");
  return {
    get host() {
      return host!;
    },
    reservations,
    entries: () => readdirSync(join(cache, "results")).sort(),
    start(which) {
      boot = which;
      host = scope.use(createNetns());
      addDefaultRoute(host);
    },
    cni: (words) => run([CNI_UNDER_TEST, "run", ...words.split(" "), "--conf-dir", conf, "--cache-dir", cache], {}),
    plugin(command, type, id, { netns = "", prevResult } = {}) {
      const config = { cniVersion: "1.0.0", name: "web", ...own, ...prevResult ? { prevResult } : {} };
      const env = { CNI_COMMAND: command, CNI_CONTAINERID: id, CNI_NETNS: netns };
      return run([type.includes("/") ? type : pluginLink(type)], env, JSON.stringify(config));
    },
    reserved: () =>
      readdirSync(reservations).filter((name) => /^\d/.test(name)).map((name) =>
        `${name} ${readFileSync(join(reservations, name), "utf8").split("\r")[0]}`
      ).sort(),
    container(name) {
      const netns = scope.use(createNetns());
      const path = join(directory, name);
      rmSync(path, { force: true });
      symlinkSync(netns.path, path);
      return { netns, path };
    },
  };
}

function rebootTest(name: string, body: (machine: Machine) => void, programs: readonly string[] = PROGRAMS): void {
  testWith(programs, name, () => {
    using scope = new DisposableStack();
    body(newMachine(scope));
  });
}

const REASON = "it was attached before the last start of the machine";

describe("after a restart", () => {
  rebootTest("cni run list tells what is of the boot before, gc removes it and nothing of this boot", (machine) => {
    const { cni, container } = machine;
    machine.start("one");
    const paths = ["c1", "c2", "c3"].map((id) => {
      const { path } = container(id);
      expect(cni(`add web ${path} --container-id ${id}`)).toMatchObject({ exitCode: 0, stderr: "" });
      return path;
    });
    expect(JSON.parse(cni("list --json").stdout).map(({ state }: { state: string }) => state)).toEqual(
      Array(3).fill("attached"),
    );

    machine.start("two");
    // Gone, left as a file, and of somebody else by now, who has an interface of the same name.
    rmSync(paths[0]!);
    rmSync(paths[1]!);
    writeFileSync(paths[1]!, "");
    const { netns: other } = container("c3");
    runInNetns(other, "ip", "link", "add", "eth0", "type", "bridge");
    const listed = JSON.parse(cni("list --json").stdout);
    expect(listed).toMatchObject(
      ["c1", "c2", "c3"].map((containerId) => ({ containerId, state: "gone", reason: REASON })),
    );
    expect(cni("list").stdout.split("\n")[3]).toMatch(
      new RegExp(`^web +c3 +eth0 +gone +10.9.0.4/29 +\\S+ +${REASON}$`),
    );
    expect(cni(`restore`).stdout).toContain(REASON);

    const living = container("c4");
    expect(cni(`add web ${living.path} --container-id c4`)).toMatchObject({ exitCode: 0, stderr: "" });
    expect(cni(`del web ${paths[2]} --container-id c3`)).toMatchObject({
      exitCode: 0,
      stderr: expect.stringContaining(`without its namespace, which is not at "${paths[2]}"`),
    });
    expect(machine.reserved()).toEqual(["10.9.0.2 c1", "10.9.0.3 c2", "10.9.0.5 c4"]);
    const removed = (id: string) => `cni: Removed "eth0" of container "${id}" on network "web"\n`;
    expect(cni("gc web --valid c4/eth0 --valid c1/eth0")).toMatchObject({ exitCode: 0, stderr: removed("c2") });
    expect([machine.entries(), machine.reserved()]).toEqual([["web-c1-eth0", "web-c4-eth0"], [
      "10.9.0.2 c1",
      "10.9.0.5 c4",
    ]]);
    expect(runInNetns(other, "ip", "-o", "link")).toContain("eth0");
    expect(cni(`check web ${living.path} --container-id c4`)).toMatchObject({ exitCode: 0, stderr: "" });
    expect(cni("gc web --valid c4/eth0")).toMatchObject({ exitCode: 0, stderr: removed("c1") });
    expect(machine.reserved()).toEqual(["10.9.0.5 c4"]);
    expect(cni(`del web ${living.path} --container-id c4`).exitCode).toBe(0);
    expect(readdirSync(machine.reservations).sort()).toEqual(["last_reserved_ip.0", "lock"]);
  });

  rebootTest("a container of the same name is attached anew, whoever has its path by now", (machine) => {
    const { cni, container } = machine;
    machine.start("one");
    expect(cni(`add web ${container("c1").path} --container-id c1`).exitCode).toBe(0);
    machine.start("two");
    const { netns, path } = container("c1");
    runInNetns(netns, "ip", "link", "add", "eth0", "type", "bridge");
    const added = cni(`add web ${path} --container-id c1 --ifname eth1`);
    expect(added).toMatchObject({ exitCode: 0, stderr: "" });
    runInNetns(netns, "ip", "link", "del", "eth0");
    const again = cni(`add web ${path} --container-id c1`);
    expect([again.exitCode, again.stderr]).toEqual([
      0,
      `cni: Removing what is left of "eth0" of container "c1" on network "web" first: ${REASON}\n`,
    ]);
    for (const ifname of ["eth0", "eth1"]) {
      expect(cni(`check web ${path} --container-id c1 --ifname ${ifname}`)).toMatchObject({ exitCode: 0, stderr: "" });
    }
    expect(machine.reserved()).toEqual(["10.9.0.3 c1", "10.9.0.4 c1"]);
  });

  rebootTest(
    "engines' DEL of old sandboxes succeeds without a namespace, and their ADD has the whole range",
    (machine) => {
      const { plugin, container } = machine;
      machine.start("one");
      const results = ["c1", "c2", "c3", "c4", "c5"].map((id) => {
        const { exitCode, stdout } = plugin("ADD", "bridge", id, { netns: container(id).path });
        expect(exitCode).toBe(0);
        return JSON.parse(stdout);
      });
      const full = plugin("ADD", "bridge", "d1", { netns: container("d1").path });
      expect(JSON.parse(full.stdout)).toMatchObject({ code: 11, msg: expect.stringContaining("are in use") });

      machine.start("two");
      expect(plugin("DEL", "bridge", "c1", { prevResult: results[0] })).toMatchObject({ exitCode: 0, stdout: "" });
      expect(plugin("DEL", "bridge", "c2")).toMatchObject({ exitCode: 0, stdout: "" });
      const first = plugin("ADD", "bridge", "d1", { netns: container("d1").path });
      expect([first.exitCode, first.stderr]).toEqual([0, ""]);
      expect(machine.reserved()).toContain("10.9.0.4 c3");
      plugin("ADD", "bridge", "d2", { netns: container("d2").path });
      const third = plugin("ADD", "bridge", "d3", { netns: container("d3").path });
      expect(third.exitCode).toBe(0);
      const [said, ...named] = third.stderr.trimEnd().split(/: (?=1)|; /);
      expect(said).toBe("host-local: Reclaimed 3 addresses reserved before the last start of the machine");
      expect(named.sort()).toEqual(
        ['10.9.0.4 of container "c3"', '10.9.0.5 of container "c4"', '10.9.0.6 of container "c5"'].map((each) =>
          `${each}, interface "eth0"`
        ),
      );
      // The engine is later than that.
      expect(plugin("DEL", "bridge", "c3", { prevResult: results[2] })).toMatchObject({ exitCode: 0, stdout: "" });
      expect(machine.reserved().map((each) => each.split(" ")[1]).sort()).toEqual(["d1", "d2", "d3"]);
      // Of this boot.
      for (const id of ["d4", "d5"]) {
        expect(plugin("ADD", "bridge", id, { netns: container(id).path }).exitCode).toBe(
          0,
        );
      }
      expect(plugin("ADD", "bridge", "d6", { netns: container("d6").path }).exitCode).toBe(1);
      for (const id of ["d1", "d2", "d3", "d4", "d5"]) {
        expect(plugin("DEL", "bridge", id, { netns: container(id).path }).exitCode).toBe(0);
      }
      expect(machine.reserved()).toEqual([]);
    },
  );

  rebootTest("without an id of the boot, nothing is of another", (machine) => {
    const { plugin } = machine;
    machine.start("one");
    for (const id of ["c1", "c2", "c3", "c4", "c5"]) {
      expect(plugin("ADD", "host-local", id, { netns: "/x" }).exitCode).toBe(0);
    }
    machine.start("none");
    expect(plugin("ADD", "host-local", "d1", { netns: "/x" }).exitCode).toBe(1);
    expect(machine.reserved()).toHaveLength(5);
    expect(plugin("DEL", "host-local", "c1", { netns: "" }).exitCode).toBe(0);
    expect(plugin("ADD", "host-local", "d1", { netns: "/x" })).toMatchObject({ exitCode: 0, stderr: "" });
    machine.start("one");
    expect(plugin("ADD", "host-local", "d2", { netns: "/x" }).exitCode).toBe(1);
    machine.start("two");
    expect(plugin("ADD", "host-local", "d2", { netns: "/x" }).exitCode).toBe(0);
    // The one that does not tell its boot stays.
    expect(machine.reserved().map((each) => each.split(" ")[1])).toEqual(["d1", "d2"]);
  });

  rebootTest(
    "beside the reference plugin: what it reserved stays, what it removes is gone",
    (machine) => {
      const { plugin } = machine;
      const theirs = join(REFERENCE, "host-local");
      const add = (type: string, id: string) => plugin("ADD", type, id, { netns: "/x" });
      machine.start("one");
      for (const id of ["a1", "a2"]) expect(add("host-local", id).exitCode).toBe(0);
      for (const id of ["b1", "b2"]) expect(add(theirs, id).exitCode).toBe(0);
      machine.start("two");
      expect(add(theirs, "b3").exitCode).toBe(0);
      expect(plugin("DEL", theirs, "a1").exitCode).toBe(0);
      expect(plugin("DEL", theirs, "b1").exitCode).toBe(0);
      expect(machine.reserved()).toEqual(["10.9.0.3 a2", "10.9.0.5 b2", "10.9.0.6 b3"]);
      for (const id of ["c1", "c2"]) expect(add("host-local", id)).toMatchObject({ exitCode: 0, stderr: "" });
      expect(add("host-local", "c3").stderr).toContain("Reclaimed an address");
      expect(add("host-local", "c4").exitCode).toBe(1);
      expect(machine.reserved().map((each) => each.split(" ")[1]).sort()).toEqual(["b2", "b3", "c1", "c2", "c3"]);
      for (const id of ["b2", "b3", "c1", "c2", "c3"]) expect(plugin("DEL", theirs, id).exitCode).toBe(0);
      expect(readdirSync(machine.reservations).sort()).toEqual(["last_reserved_ip.0", "lock"]);
    },
    existsSync(join(REFERENCE, "host-local")) ? PROGRAMS : ["the reference's host-local"],
  );
});
