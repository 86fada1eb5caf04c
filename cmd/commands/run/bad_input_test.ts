/** What `cni run` says to configurations that cannot be used: one error, and nothing is done. */
import { afterAll, expect } from "bun:test";
import { existsSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { netnsTest, runInNetns } from "../../../testing/netns.ts";
import { newCliSandboxes } from "../../../testing/cli.ts";

const { root, bench } = newCliSandboxes();
afterAll(() => rmSync(root, { recursive: true }));

const nested = `${"[".repeat(10_000)}${"]".repeat(10_000)}`;
const networkWith = (extra: string) => `{"cniVersion":"1.1.0","name":"web","plugins":[{"type":"bridge"${extra}}]}`;
const cases: readonly (readonly [what: string, text: string | Uint8Array, code: number])[] = [
  ["nothing", "", 6],
  ["no JSON", "web: {}", 6],
  ["no object", "[]", 7],
  ["null", "null", 7],
  ["two documents", `${networkWith("")}${networkWith("")}`, 6],
  ["no UTF-8", Buffer.from(networkWith(',"x":"\xe9"'), "latin1"), 6],
  ["10 MB", networkWith(`,"x":"${"y".repeat(10 << 20)}"`), 6],
  ["10,000 levels", networkWith(`,"x":${nested}`), 6],
  ["10,000 plugins", JSON.stringify({ name: "web", plugins: Array(10_000).fill({ type: "bridge" }) }), 7],
  ["a NUL in its name", networkWith("").replace('"web"', '"w\\u0000b"'), 7],
  ["a NUL in a type", networkWith("").replace('"bridge"', '"bridge\\u0000"'), 7],
  ["null for a plugin", '{"name":"web","plugins":[null]}', 7],
  ["no name", '{"plugins":[{"type":"bridge"}]}', 7],
  ["a version that is not spoken", networkWith("").replace("1.1.0", "2.0.0"), 1],
];

for (const [what, text, code] of cases) {
  netnsTest(`cni run add of a configuration with ${what} is one error with code ${code}`, ({ host, container }) => {
    const { run, conf, cache } = bench(host);
    const path = join(conf, "web.conflist");
    writeFileSync(path, text);
    const { exitCode, stdout, stderr } = run(`add ${path} ${container.path} --json`);
    expect([exitCode, JSON.parse(stdout).code]).toEqual([1, code]);
    expect(stderr).toMatch(/^cni: Cannot [^\n]{10,350}\n( {5}[^\n]{1,300}\n)?$/);
    expect(existsSync(cache)).toBe(false);
  });
}

netnsTest("cni run says what is at fault besides the configuration", ({ host, container }) => {
  const { command, run, network, conf } = bench(host);
  network("web");
  const ended = host.run(() => Bun.spawnSync(["sh", "-c", '"$@" < /', "sh", ...command(`add - ${container.path}`)]));
  expect([ended.exitCode, ended.stderr.toString()]).toEqual([
    1,
    "cni: Cannot read standard input: Is a directory (EISDIR)\n",
  ]);
  expect(run("add web cni-no-such-netns")).toMatchObject({
    exitCode: 1,
    stderr: 'cni: Cannot open network namespace "/run/netns/cni-no-such-netns": there is no such file\n' +
      "     make one of that name: cni netns add cni-no-such-netns\n",
  });
  expect(run("add web /nonexistent").stderr).toEndWith("there is no such file\n");
  for (const name of ["all", "default"]) {
    expect(run(`add web ${container.path} --ifname ${name}`).stderr).toContain(
      `interface name "${name}" stands for all`,
    );
    // The kernel would not have it either.
    expect(() => runInNetns(container, "ip", "link", "add", name, "type", "veth")).toThrow();
  }
  expect(run("add wbe blue").stderr).toStartWith(`cni: Cannot find network "wbe" in "${conf}"; did you mean "web"?\n`);
});

netnsTest("cni run takes the last of duplicate keys, as everybody does", ({ host }) => {
  const { run } = bench(host);
  const stdin = '{"name":"a","name":"web","plugins":[{"type":"x","type":"y","n":1,"n":2}]}';
  expect(JSON.parse(run("derive -", { stdin }).stdout)).toEqual([
    { type: "y", request: { cniVersion: "0.1.0", name: "web", type: "y", n: 2 } },
  ]);
});
