/** `cni run restore` of the compiled binary: what it prints, and how it ends. */
import { expect, test } from "bun:test";
import { existsSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { runInNetns } from "../testing/netns.ts";
import { NO_ANSWER_TIMEOUT_MS, requestTcp, serveTcp } from "../testing/traffic.ts";
import { type ConformanceNode, newConformanceNode } from "../testing/conformance.ts";
import { bridgeTestConfig } from "../testing/fixture_configs.ts";
import { CNI_UNDER_TEST } from "../testing/binary.ts";

const HTTP = ["-p", "8080:80"];

/** A network with a published port; every plugin of the directory that is ours is a link, as `cni install` makes them. */
function webOn(node: ConformanceNode): string {
  for (const name of ["bridge", "host-local", "portmap"]) {
    symlinkSync(CNI_UNDER_TEST, join(node.directory, "bin", name));
  }
  runInNetns(node.host, "ip", "link", "set", "lo", "up");
  const portmap = { type: "portmap", capabilities: { portMappings: true } };
  const plugins = [{ type: "bridge", ...bridgeTestConfig(node, { ipMasq: true }) }, portmap];
  return node.file({ cniVersion: "1.1.0", name: "web", plugins });
}

test("cni run restore puts back what a flush took away and says so, and then does nothing", async () => {
  using node = newConformanceNode();
  const { host, container, run } = node;
  const file = webOn(node);
  expect(run("add", file, container.path, "--container-id", "c1", ...HTTP)).toMatchObject({ exitCode: 0, stderr: "" });
  using _web = serveTcp(container, "web", 80);
  const ask = (patience?: number) => requestTcp(host, "10.5.0.1", 8080, patience);
  const nft = (...words: string[]) => runInNetns(host, "nft", ...words);
  expect(await ask()).toBe("web 10.5.0.1");
  nft("flush", "ruleset");
  expect(await ask(NO_ANSWER_TIMEOUT_MS)).toBeUndefined();
  const checked = run("check", file, container.path, "--container-id", "c1");
  expect(checked).toMatchObject({ exitCode: 1, stdout: "" });
  expect(checked.stderr).toContain("masquerading of 10.5.0.2 is missing");
  expect(checked.stderr).toContain("put back what is missing: cni run restore web");
  // The configuration may be gone by now.
  rmSync(file);
  const first = run("restore", "web");
  expect(first).toMatchObject({
    exitCode: 0,
    stderr:
      'cni: Restored for "eth0" of container "c1" on network "web": masquerading of 10.5.0.2, host port 8080/tcp, ' +
      "masquerading of what reaches 10.5.0.2 by a published port\n",
  });
  expect(JSON.parse(first.stdout)).toEqual({
    tables: [],
    attachments: [{
      network: "web",
      containerId: "c1",
      ifname: "eth0",
      state: "restored",
      plugins: [
        { type: "bridge", restored: ["masquerading of 10.5.0.2"] },
        {
          type: "portmap",
          restored: ["host port 8080/tcp", "masquerading of what reaches 10.5.0.2 by a published port"],
        },
      ],
    }],
    problems: [],
  });
  expect(await ask()).toBe("web 10.5.0.1");
  const before = nft("-a", "list", "ruleset");
  for (const which of [[], ["--all"], ["web"]]) {
    const again = run("restore", ...which);
    expect(again).toMatchObject({ exitCode: 0, stderr: "" });
    expect(JSON.parse(again.stdout).attachments[0].state).toBe("whole");
  }
  expect(nft("-a", "list", "ruleset")).toBe(before);
});

test("several that restore at once put everything back, each thing once", async () => {
  using node = newConformanceNode();
  const { host, run, directory } = node;
  const file = webOn(node);
  const ids = ["a", "b", "c", "d", "e"];
  for (const [i, id] of ids.entries()) {
    const words = ["--container-id", id, "-p", `${8080 + i}:80`];
    expect(run("add", file, node.newContainer().path, ...words).exitCode).toBe(0);
  }
  runInNetns(host, "nft", "flush", "ruleset");
  const command = [
    CNI_UNDER_TEST,
    "run",
    "restore",
    "--cache-dir",
    `${directory}/cache`,
    "--plugin-dir",
    `${directory}/bin`,
  ];
  const { children } = host.run(() => ({
    children: Array.from({ length: 4 }, () => Bun.spawn(command, { stderr: "pipe" })),
  }));
  const ended = await Promise.all(
    children.map(async (child) => [await child.exited, JSON.parse(await child.stdout.text())] as const),
  );
  expect(ended.map(([code]) => code)).toEqual([0, 0, 0, 0]);
  const restored = ended.flatMap(([, { attachments }]) =>
    attachments.flatMap(({ containerId, plugins }: { containerId: string; plugins: { restored: string[] }[] }) =>
      plugins.flatMap((each) => each.restored.map((what) => `${containerId} ${what}`))
    )
  );
  const wanted = ids.flatMap((id, i) => {
    const address = `10.5.0.${i + 2}`;
    const what = [`masquerading of ${address}`, `host port ${8080 + i}/tcp`];
    return [...what, `masquerading of what reaches ${address} by a published port`].map((each) => `${id} ${each}`);
  });
  expect(restored.sort()).toEqual(wanted.sort());
  expect(runInNetns(host, "nft", "list", "ruleset").match(/chain masquerade-/g)).toHaveLength(1);
});

test("cni run restore ends with 1 when something failed, and prints one document all the same", () => {
  using node = newConformanceNode();
  const { host, container, run, program } = node;
  const file = webOn(node);
  for (const [id, netns, ports] of [["a", container, HTTP], ["b", node.newContainer(), []]] as const) {
    expect(run("add", file, netns.path, "--container-id", id, ...ports).exitCode).toBe(0);
  }
  runInNetns(
    host,
    "nft",
    "flush ruleset; add table inet cni; add chain inet cni postrouting; add rule inet cni postrouting drop",
  );
  const { exitCode, stdout, stderr } = run("restore", "--json");
  expect(exitCode).toBe(1);
  expect(JSON.parse(stdout).attachments.map(({ state }: { state: string }) => state)).toEqual(["failed", "failed"]);
  expect(stderr).toMatch(/cni: Cannot restore "eth0" of container "a" on network "web": plugin "bridge" \(restore\): /);
  expect(stderr).toContain('cni: Cannot repair table "inet cni": it was not made by this program');
  expect(stderr).toEndWith("\ncni: Cannot restore 2 of 2 attachments and what the document names\n");
  runInNetns(host, "nft", "flush", "ruleset");
  writeFileSync(join(node.directory, "cache/results/web-broken-eth0"), "{");
  rmSync(join(node.directory, "bin/portmap"));
  program("portmap", "exit 1");
  const second = run("restore");
  expect(second.exitCode).toBe(1);
  expect(JSON.parse(second.stdout)).toMatchObject({
    attachments: [{ state: "restored" }, { state: "restored" }],
    problems: [expect.stringContaining("web-broken-eth0")],
  });
  expect(second.stderr).toMatch(/^cni: Cannot use cached attachment ".*web-broken-eth0": /);
  const skipped = second.stderr.match(
    /Skipping plugin "portmap" of network "web": "(.*)" is called for it, .*command\n/g,
  );
  expect(skipped).toEqual([expect.stringContaining("/bin/portmap")]);
  expect(second.stderr).toEndWith("\ncni: Cannot restore what the document names\n");
});

test("cni run restore has nothing to do where nothing is remembered, and refuses what it does not know", () => {
  using node = newConformanceNode();
  const { run, directory } = node;
  for (const which of [[], ["--all"], ["default"]]) {
    const { exitCode, stdout, stderr } = run("restore", ...which);
    expect([exitCode, JSON.parse(stdout), stderr]).toEqual([0, { tables: [], attachments: [], problems: [] }, ""]);
  }
  expect(existsSync(join(directory, "cache"))).toBe(false);
  const unknown = run("restore", "nosuch");
  expect([unknown.exitCode, unknown.stdout]).toEqual([1, ""]);
  expect(unknown.stderr).toContain('"nosuch"');
  for (
    const [words, reason] of [
      [["web", "--all"], '"run restore" takes a network or --all, not both: got "web"'],
      [["--valid", "c1"], 'option "--valid" belongs to "run gc", "run derive"'],
      [["--command", "GC"], 'option "--command" belongs to "run derive"'],
    ] as const
  ) {
    expect(run("restore", ...words)).toMatchObject({
      exitCode: 2,
      stdout: "",
      stderr: expect.stringContaining(reason),
    });
  }
});

test("nobody outside can ask a plugin to restore", () => {
  using node = newConformanceNode();
  for (const command of ["RESTORE", "restore"]) {
    expect(node.fail("portmap", command, {})).toMatchObject({
      code: 4,
      msg: `Cannot run: unknown CNI_COMMAND "${command}"`,
    });
  }
});
