import { beforeEach, expect, test } from "bun:test";
import {
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { PROGRAM_MARK } from "../../ffi/sys/program_mark.ts";
import { useDirectory } from "../../testing/directory.ts";
import { newCliSandboxes } from "../../testing/cli.ts";
import { INSTALLED_PLUGINS, INSTALLED_PROGRAM, INSTALLED_SHIM, newInstallHome } from "../../testing/install_home.ts";
import { netnsTest, runShellInNetns } from "../../testing/netns.ts";
import { install } from "./install.ts";
import { planUninstall, uninstall } from "../install/uninstall_steps.ts";

const root = useDirectory("cni-uninstall-");

let bin = "";
let program = "";
beforeEach(() => {
  ({ bin, program } = newInstallHome(root));
  mkdirSync(bin, { recursive: true });
});

const names = INSTALLED_PLUGINS;
const put = (copy = false) => install({ directory: bin, program, names, force: true, copy });
const takeOut = (running = program) => {
  const steps = planUninstall({ directory: bin, program: running, names });
  uninstall(steps, bin);
  return steps.map(({ path, outcome }) => `${path.slice(bin.length + 1)}: ${outcome}`);
};
/** All that is in the directory. */
const contents = () =>
  Object.fromEntries(
    readdirSync(bin).sort().map((name) => {
      const path = join(bin, name);
      const stat = lstatSync(path);
      return [
        name,
        stat.isSymbolicLink() ? `-> ${readlinkSync(path)}` : stat.isFile() ? readFileSync(path, "utf8") : "",
      ];
    }),
  );

test.each([false, true])("uninstall() leaves the directory as it was before install() (copies: %j)", (copy) => {
  writeFileSync(join(bin, "portmap"), "portmap of another");
  linkSync(join(bin, "portmap"), join(bin, "sriov"));
  symlinkSync("../elsewhere/bridge", join(bin, "bridge"));
  const before = contents();
  put(copy);
  expect(readFileSync(join(bin, "portmap"), "utf8")).toBe(INSTALLED_PROGRAM);
  expect(takeOut().sort()).toEqual(["bridge: put back", "cni: removed", "portmap: put back"]);
  expect(contents()).toEqual(before);
  expect(takeOut()).toEqual([]);
});

test("uninstall() leaves alone what somebody else has put over ours, and the backup", () => {
  writeFileSync(join(bin, "portmap"), "old");
  put();
  rmSync(join(bin, "portmap"));
  writeFileSync(join(bin, "portmap"), "new");
  expect(takeOut().sort()).toEqual(["bridge: removed", "cni: removed", "portmap: stays"]);
  expect(contents()).toEqual({ ".cni-backup": "", portmap: "new" });
  rmSync(join(bin, "portmap"));
  expect(takeOut()).toEqual(["portmap: put back"]);
  expect(contents()).toEqual({ portmap: "old" });
});

test("uninstall() knows plugins of another version by their backups, and links to a program that is gone", () => {
  writeFileSync(join(bin, "older"), "older of another");
  install({ directory: bin, program, names: ["bridge", "older"], force: true, copy: false });
  rmSync(program);
  writeFileSync(program, `program 2${PROGRAM_MARK}`);
  expect(takeOut().sort()).toEqual(["bridge: removed", "cni: removed", "older: put back"]);
  expect(contents()).toEqual({ older: "older of another" });
});

test("uninstall() leaves alone links to a program of our name, and puts them back", () => {
  writeFileSync(join(bin, "cni"), "several plugins of another");
  for (const name of names) symlinkSync("cni", join(bin, name));
  const before = contents();
  expect(takeOut()).toEqual([]);
  expect(contents()).toEqual(before);
  put(true);
  // The installed copy makes links of its own to itself.
  install({ directory: bin, program: join(bin, "cni"), names, force: false, copy: false });
  expect(takeOut(join(bin, "cni"))).toEqual(["cni: put back", "bridge: put back", "portmap: put back"]);
  expect(contents()).toEqual(before);
});

test.each([false, true])(
  "uninstall() removes shims and their program, and puts back the others (copies: %j)",
  (copy) => {
    writeFileSync(join(bin, "portmap"), "portmap of another");
    const before = contents();
    install({ directory: bin, program, names, force: true, copy, shim: INSTALLED_SHIM });
    expect(takeOut()).toEqual(["cni: removed", "bridge: removed", "portmap: put back", "cni-full: removed"]);
    expect(contents()).toEqual(before);
  },
);

test("uninstall() removes libraries beside the program, after the programs", () => {
  const put = (directory: string, ...names: string[]) => {
    mkdirSync(directory, { recursive: true });
    for (const name of names) writeFileSync(join(directory, name), "");
  };
  install({ directory: bin, program, names, force: false, copy: true });
  put(join(bin, "cni-lib"), "ld-linux-aarch64.so.1", "libm.so.6", "copyright");
  // A killed install leaves such files.
  put(join(bin, ".cni-new"), "cni-full", ".bridge.71.tmp");
  put(join(bin, ".cni-new/cni-lib"), ".libc.so.6.71.tmp");
  expect(takeOut()).toEqual([
    "cni: removed",
    "bridge: removed",
    "portmap: removed",
    "cni-lib: removed",
    ".cni-new: removed",
  ]);
  expect(readdirSync(bin)).toEqual([]);
  put(join(bin, "cni-lib"), "libc.so.6", "other");
  expect(takeOut()).toEqual([]);
});

test("uninstall() removes shims and the program that runs; licences of an archive stay", () => {
  install({ directory: bin, program, names, force: false, copy: true, shim: INSTALLED_SHIM });
  for (const name of ["LICENSE", "LICENSE.third-party"]) writeFileSync(join(bin, name), "");
  const outcomes = takeOut(join(bin, "cni-full"));
  expect(outcomes).toContain("cni-full: removed");
  expect(outcomes.slice(-2)).toEqual(["LICENSE: stays", "LICENSE.third-party: stays"]);
  expect(readdirSync(bin).sort()).toEqual(["LICENSE", "LICENSE.third-party"]);
});

netnsTest(
  "cni uninstall refuses while containers need what it removes, and takes the tables away",
  ({ host, container }) => {
    const sandboxes = newCliSandboxes();
    const { run, network, conf, cache } = sandboxes.bench(host);
    const uninstallWith = (...options: string[]) =>
      host.run(() => sandboxes.cni(["uninstall", "--conf-dir", conf, "--cache-dir", cache, ...options, bin]));
    const tables = () => host.run(() => Bun.spawnSync(["nft", "list", "tables"])).stdout.toString();
    network("web");
    const file = join(conf, "web.conflist");
    writeFileSync(file, readFileSync(file, "utf8").replace('"bridge":"br9"', '"bridge":"br9","ipMasq":true'));
    put(true);
    const before = contents();
    expect(run(`add web ${container.path} --container-id c1`).exitCode).toBe(0);
    const refused = uninstallWith();
    expect([refused.exitCode, refused.stderr]).toEqual([
      1,
      expect.stringContaining('"eth0" of container "c1" on network "web"'),
    ]);
    expect(refused.stderr).toContain("--force");
    expect([contents(), tables()]).toEqual([before, "table inet cni\n"]);
    expect(uninstallWith("--dry-run")).toMatchObject({ exitCode: 1, stdout: "", stderr: refused.stderr });
    network("unused");
    expect(uninstallWith("--network", "unused")).toMatchObject({ exitCode: 1, stdout: "", stderr: refused.stderr });
    expect(readdirSync(conf).sort()).toEqual(["unused.conflist", "web.conflist"]);
    rmSync(join(conf, "unused.conflist"));

    const forced = uninstallWith("--force");
    expect([forced.exitCode, forced.stderr]).toEqual([
      0,
      expect.stringContaining("Table inet cni stays: it has rules"),
    ]);
    expect([contents(), tables()]).toEqual([{}, "table inet cni\n"]);

    // What was there before detaches them.
    for (const name of ["bridge", "host-local"]) writeFileSync(join(bin, name), "of another");
    install({ directory: bin, program, names: ["bridge", "host-local"], force: true, copy: true });
    expect(uninstallWith()).toMatchObject({ exitCode: 0, stdout: expect.stringContaining("bridge: put back") });

    expect(run(`del web ${container.path} --container-id c1`).exitCode).toBe(0);
    rmSync(bin, { recursive: true });
    mkdirSync(bin);
    put(true);
    expect(uninstallWith()).toMatchObject({
      exitCode: 0,
      stderr: "",
      stdout: expect.stringContaining("table inet cni: removed\n"),
    });
    expect([contents(), tables()]).toEqual([{}, ""]);
    rmSync(sandboxes.root, { recursive: true });
  },
);

test("cni uninstall --network removes nothing if the name is misspelt or the file broken, and goes on if the network is gone", () => {
  const sandboxes = newCliSandboxes();
  const networks = mkdtempSync(join(sandboxes.root, "networks-"));
  const file = join(networks, "web.conflist");
  writeFileSync(file, JSON.stringify({ cniVersion: "1.0.0", name: "web", plugins: [{ type: "loopback" }] }));
  put(true);
  const before = contents();
  const uninstallWith = (network: string) =>
    sandboxes.cni(["uninstall", "--network", network, "--conf-dir", networks, "--cache-dir", networks, bin]);
  const misspelt = uninstallWith("wbe");
  expect(misspelt.exitCode).toBe(1);
  expect(misspelt.stderr).toContain(`No file in "${networks}" has a network "wbe"; did you mean "web"?`);
  expect(contents()).toEqual(before);
  writeFileSync(join(networks, "broken.conflist"), JSON.stringify({ name: "broken", plugins: [] }));
  const broken = uninstallWith("broken");
  expect([broken.exitCode, broken.stderr]).toEqual([1, expect.stringContaining("broken.conflist")]);
  expect(contents()).toEqual(before);
  rmSync(join(networks, "broken.conflist"));
  const gone = uninstallWith("storage");
  expect([gone.exitCode, gone.stderr]).toEqual([0, `cni: No file in "${networks}" has a network "storage"\n`]);
  expect(contents()).toEqual({});
  expect(readdirSync(networks)).toEqual(["web.conflist"]);
  rmSync(sandboxes.root, { recursive: true });
});

test("cni uninstall --network lets plugins of others clean up, in the directory that it leaves to them", () => {
  const sandboxes = newCliSandboxes();
  const networks = mkdtempSync(join(sandboxes.root, "networks-"));
  const file = join(networks, "web.conflist");
  writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins: [{ type: "own" }] }));
  const versions = JSON.stringify({ cniVersion: "1.1.0", supportedVersions: ["1.1.0"] });
  const calls = join(networks, "calls");
  const script = `#!/bin/sh\necho $CNI_COMMAND >>${calls}\n[ $CNI_COMMAND != VERSION ] || echo '${versions}'\n`;
  writeFileSync(join(bin, "own"), script, { mode: 0o755 });
  const { exitCode, stderr } = sandboxes.cni(
    ["uninstall", "--network", "web", "--conf-dir", networks, "--cache-dir", join(networks, "cache"), bin],
  );
  expect([exitCode, stderr]).toEqual([0, `cni: Nothing in "${bin}" is of this program\n`]);
  expect(readFileSync(calls, "utf8")).toContain("GC\n");
  expect(existsSync(file)).toBe(false);
  rmSync(sandboxes.root, { recursive: true });
});

netnsTest(
  "cni uninstall --network keeps the plugins if a container's network has lost its file",
  ({ host, container }) => {
    const sandboxes = newCliSandboxes();
    const { run, network, conf, cache } = sandboxes.bench(host);
    const uninstallFrom = (directory: string) =>
      host.run(() =>
        sandboxes.cni(["uninstall", "--network", "web", "--conf-dir", conf, "--cache-dir", cache, directory])
      );
    put(true);
    const before = contents();
    network("web");
    expect(run(`add web ${container.path}`)).toMatchObject({ exitCode: 0, stderr: "" });
    rmSync(join(conf, "web.conflist"));
    const used = uninstallFrom(bin);
    expect([used.exitCode, used.stderr]).toEqual([1, expect.stringMatching(/uses it .*"cni network rm web --force"/s)]);
    expect(contents()).toEqual(before);

    expect(run(`del web ${container.path}`)).toMatchObject({ exitCode: 0 });
    network("web");
    expect(uninstallFrom(`${bin}-misspelt`).exitCode).toBe(1);
    expect(readdirSync(conf)).toEqual(["web.conflist"]);
    expect(uninstallFrom(bin)).toMatchObject({ exitCode: 0, stderr: "" });
    expect([readdirSync(conf), contents()]).toEqual([[], {}]);
    rmSync(sandboxes.root, { recursive: true });
  },
);

test("cni uninstall --host touches nothing in a container that does not see the host", () => {
  const sandboxes = newCliSandboxes();
  put(true);
  const before = contents();
  // Process 1 is the command itself.
  const { exitCode, stderr } = sandboxes.cni(["uninstall", "--host", bin], {
    wrapper: ["unshare", "--pid", "--fork", "--mount-proc"],
  });
  expect([exitCode, stderr]).toEqual([1, expect.stringContaining("Cannot enter the host's mounts")]);
  expect(contents()).toEqual(before);
  rmSync(sandboxes.root, { recursive: true });
});

netnsTest("what forwarding needed stays, and uninstall says how to set it back", ({ host }) => {
  const sandboxes = newCliSandboxes();
  try {
    runShellInNetns(host, "ip link add eth0 type veth peer name far0");
    const run = () => host.run(() => sandboxes.cni(["uninstall", bin])).stderr;
    put();
    expect(run()).not.toContain("forwarding");
    runShellInNetns(host, "cd /proc/sys/net/ipv6/conf", "echo 2 >eth0/accept_ra; echo 1 >all/forwarding");
    put();
    expect(run()).toContain(
      "cni: net.ipv6.conf.all.forwarding stays 1, and net.ipv6.conf.eth0.accept_ra 2: with 1, the kernel would remove " +
        "the IPv6 default route. If nothing else needs forwarding: " +
        "sysctl -w net.ipv6.conf.all.forwarding=0 net.ipv6.conf.eth0.accept_ra=1\n",
    );
  } finally {
    rmSync(sandboxes.root, { recursive: true });
  }
});
