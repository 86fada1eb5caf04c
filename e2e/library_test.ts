/** The package of the library, installed by npm into an empty project: examples run, have types, and become programs. */
import { afterAll, beforeAll, expect, test } from "bun:test";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { createNetns } from "../ffi/netns/netns.ts";
import { programFiles } from "../scripts/src/new-plugin/main.ts";
import { libraryPackage, reachable } from "../scripts/src/release/library.ts";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import * as schema from "../spec/schema.ts";
import { ENGINE_ENV, testWith } from "../testing/binary.ts";
import { expectedLines, runExample } from "../testing/examples.ts";
import { newNamespaces, runIp } from "../testing/netns.ts";

const DENO = join(REPOSITORY_ROOT, "node_modules/.bin/deno");
const GREET = `import { main, plugin, schema } from "@cni/cni";

main(plugin({
  name: "greet",
  about: "Says hello and changes nothing",
  config: schema.object({ greeting: schema.withDefault(schema.string, "hello") }),
  add: ({ config, log, prevResult }) => {
    log(config.greeting);
    return prevResult ?? {};
  },
  del: () => {},
  check: () => {},
}));
`;
/** All that needs no kernel. */
const PURE =
  `import { containerIdOfNetns, convertResult, lintNetworks, loadNetwork, parseResult, Runtime } from "@cni/cni";

const list = loadNetwork("web", { directory: "net.d" });
const runtime = new Runtime({ env: {}, pluginDirectories: ["net.d"], cacheDirectory: "net.d" });
const failures = ["absent", "net.d/bad.conflist"].map((name) => {
  try {
    return loadNetwork(name, { directory: "net.d" });
  } catch (error) {
    return String(error);
  }
});
const result = parseResult({ cniVersion: "1.1.0", ips: [{ address: "10.1.0.2/24" }] }, "1.1.0");
console.log(JSON.stringify({
  list,
  failures,
  derived: (["ADD", "DEL", "STATUS"] as const).map((verb) => runtime.deriveRequests(list, { verb })),
  unknown: runtime.unknownKeys(list),
  lint: await lintNetworks(["net.d"], { pluginDirectories: [], disabled: ["foreign-route"] }),
  converted: convertResult(result, "0.2.0"),
  id: containerIdOfNetns("/run/netns/blue"),
}));
`;
const WEB = `{
  "cniVersion": "1.1.0",
  "name": "web", // a comment
  "plugins": [{ "type": "bridge", "brigde": "web0", "ipam": { "type": "host-local", "subnet": "10.1.0.0/24" } }]
}
`;
const KERNEL = `import { createNetns, currentNetns, findPlugin, loadNetwork, main, openNetns, Runtime } from "@cni/cni";

const web = loadNetwork("web", { directory: "net.d" });
const runtime = new Runtime({ env: {}, cacheDirectory: "net.d", pluginDirectories: [], log: () => {} });
const c1 = { containerId: "c1", ifname: "eth0", netns: "/proc/self/ns/net" };
const c2 = { containerId: "c2", ifname: "eth0" };
const calls = [
  () => runtime.add(web, c1),
  () => runtime.check(web, c1),
  () => runtime.del(web, c1),
  () => runtime.gc(web, []),
  () => runtime.status(web),
  () => runtime.restore(),
  () => createNetns(),
  () => openNetns("/proc/self/ns/net"),
  () => currentNetns().route,
  () => runtime.deriveRequests(web, { verb: "DEL", parameters: { ...c2, args: [["K", "new"]] } }),
];
for (const call of calls) {
  try {
    call();
    console.log("no error");
  } catch (error) {
    console.log((error as Error).message);
  }
}
main(findPlugin("bridge")!, { CNI_COMMAND: "STATUS" });
console.log("\\n" + process.exitCode);
process.exitCode = 0;
`;
const FILES = {
  "package.json": '{ "private": true, "type": "module" }',
  "greet.ts": GREET,
  "pure.ts": PURE,
  "kernel.ts": KERNEL,
  "net.d/web.conflist": WEB,
  "net.d/results/web-c2-eth0": JSON.stringify({
    kind: "cniCacheV1",
    ...{ containerId: "c2", ifName: "eth0", networkName: "web", netns: "/run/netns/c2", cniArgs: [["K", "old"]] },
    ...{ config: btoa('{"cniVersion":"1.1.0","name":"web","plugins":[{"type":"bridge"}]}'), bootId: "" },
  }),
  "net.d/bad.conflist": '{ "name": "bad",\n  "plugins": [ }',
  ...Object.fromEntries(
    Object.entries(programFiles("link-group")).map(([name, text]) => [`link-group/${name}`, text]),
  ),
};

let project = "";
function write(path: string, data: string | Uint8Array): void {
  mkdirSync(dirname(join(project, path)), { recursive: true });
  writeFileSync(join(project, path), data);
}

beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), "cni-project-"));
  for (const [path, text] of Object.entries(FILES)) write(path, text);
  for (const [i, text] of examples().entries()) write(`examples/${i}.ts`, text);
  write("cni.tgz", libraryPackage(1e9));
  write("tsconfig.json", programFiles("link-group")["tsconfig.json"]!);
  // The types of Bun, which each project with Bun has.
  const { devDependencies } = JSON.parse(readFileSync(join(REPOSITORY_ROOT, "package.json"), "utf8"));
  const words = ["--no-audit", "--no-fund", "--loglevel=error", `bun-types@${devDependencies["bun-types"]}`];
  if (Bun.which("npm")) run("npm", "install", ...words, "./cni.tgz");
}, 60_000);
afterAll(() => rmSync(project, { recursive: true }));

/** In the documentation and in docstrings, as an importer of the package writes them. */
function examples(): string[] {
  return ["docs/library.md", ...reachable().files].flatMap((path) => {
    const text = readFileSync(join(REPOSITORY_ROOT, path), "utf8").replaceAll(/^ *\* ?/gm, "");
    return [...text.matchAll(/^```ts\n(import [^]*?)^```$/gm)].map(([, code = ""]) =>
      code.replace('"./mod.ts"', '"@cni/cni"')
    );
  });
}

function run(...command: string[]): string {
  const env = { ...process.env, NO_COLOR: "1" };
  const { exitCode, stdout, stderr } = Bun.spawnSync(command, { cwd: project, env, stdin: "ignore", stderr: "pipe" });
  if (exitCode !== 0) throw new Error(`${command.join(" ")} ended with ${exitCode}: ${stdout}${stderr}`);
  return stdout.toString();
}

const CONFIG = '{"cniVersion":"1.1.0","name":"web","type":"greet","greeting":"hi"}';

testWith(["npm"], "a plugin is a program, from its source and compiled", () => {
  using container = createNetns();
  run(process.execPath, "build", "--compile", "greet.ts", "--outfile=greet");
  for (const command of [[process.execPath, "greet.ts"], ["./greet"]]) {
    const call = (env: Record<string, string>, stdin: string) => {
      const child = Bun.spawnSync(command, {
        cwd: project,
        env: { ...ENGINE_ENV, ...env },
        stdin: Buffer.from(stdin),
        stderr: "pipe",
      });
      return [child.exitCode, child.stdout.toString(), child.stderr.toString()];
    };
    const [status, stdout, stderr] = call({ CNI_COMMAND: "ADD", CNI_NETNS: container.path }, CONFIG);
    expect([status, JSON.parse(`${stdout}`).cniVersion, stderr]).toEqual([0, "1.1.0", "greet: hi\n"]);
    expect(call({ CNI_COMMAND: "VERSION" }, CONFIG)[1]).toContain('"supportedVersions"');
    expect(call({ CNI_COMMAND: "DEL", CNI_NETNS: container.path }, CONFIG)).toEqual([0, "", ""]);
    const [failed, error] = call({ CNI_COMMAND: "ADD", CNI_NETNS: container.path }, CONFIG.replace('"hi"', "1"));
    expect([failed, JSON.parse(`${error}`).code]).toEqual([1, 7]);
    expect(call({ CNI_COMMAND: "" }, "")).toEqual([0, "", expect.stringContaining("CNI greet plugin")]);
  }
}, 60_000);

testWith(["npm", "ip"], "the plugin of the template, compiled, adds and removes a container's interface", () => {
  using host = createNetns();
  using container = createNetns();
  run(process.execPath, "build", "--compile", "link-group/main.ts", "--outfile=group");
  const call = (command: string) => {
    const config = { cniVersion: "1.1.0", name: "web", type: "link-group", prevResult: { interfaces: [] } };
    const env = { ...ENGINE_ENV, CNI_COMMAND: command, CNI_NETNS: container.path };
    const stdin = Buffer.from(JSON.stringify(config));
    const { exitCode } = host.run(() => Bun.spawnSync(["./group"], { cwd: project, env, stdin }));
    return [exitCode, runIp(container, "-o addr").includes("svc0")];
  };
  expect([call("ADD"), call("CHECK"), call("DEL"), call("CHECK")]).toEqual([
    [0, true],
    [0, true],
    [0, false],
    [1, false],
  ]);
}, 60_000);

testWith(["npm"], "the example of the documentation prints what it says", () => {
  using namespaces = newNamespaces();
  const [code = ""] = examples();
  expect(runExample(namespaces, join(project, "examples/0.ts"))).toEqual({ lines: expectedLines(code), stderr: "" });
});

testWith(["npm"], "examples and programs have the right types", () => {
  run(process.execPath, "check");
  write("wrong.ts", PURE.replace('"0.2.0"', "2"));
  expect(() => run(process.execPath, "check")).toThrow("wrong.ts");
  rmSync(join(project, "wrong.ts"));
}, 60_000);

testWith(["npm"], "npm run build of a new plugin makes a program, and names a wrong word of its schema", () => {
  const { scripts } = JSON.parse(programFiles("link-group")["package.json"]!);
  const bun = join(project, "bin/bun");
  // What npm would bring.
  write("bin/bun", `#!/bin/sh\nexec ${process.execPath} "$@"\n`);
  chmodSync(bun, 0o755);
  const build = () => run("sh", "-c", `cd link-group && PATH=${dirname(bun)}:$PATH && ${scripts.build}`);
  build();
  expect(statSync(join(project, "link-group/link-group")).mode & 0o111).not.toBe(0);
  const config = join(project, "link-group/config.ts");
  const right = readFileSync(config, "utf8");
  writeFileSync(config, right.replaceAll("withDefault", "withDefualt"));
  try {
    expect(build).toThrow("withDefualt");
  } finally {
    writeFileSync(config, right);
  }
}, 60_000);

testWith(["npm"], "a wrong word of the namespace schema is found, too", () => {
  write("wrong.ts", GREET.replace("schema.string", "schema.text"));
  expect(() => run(process.execPath, "check")).toThrow("wrong.ts");
  rmSync(join(project, "wrong.ts"));
}, 60_000);

test("docs/library.md names each word of a schema", () => {
  const page = readFileSync(join(REPOSITORY_ROOT, "docs/library.md"), "utf8");
  expect(Object.keys(schema).filter((word) => !page.includes(`\`${word}`))).toEqual([]);
});

/** As the registry of Deno gives it: not from npm, and its dependencies as the manifest says. */
function runUnderDeno(file: string): string {
  const imports = { "@cni/cni": "./package/mod.ts", "jsonc-parser": "npm:jsonc-parser" };
  write("deno.json", JSON.stringify({ imports, nodeModulesDir: "manual" }));
  run("tar", "-xzf", "cni.tgz");
  return run(DENO, "run", "--quiet", "--no-check", "--no-prompt", "--allow-read=.", file);
}

testWith(["npm"], "what needs no kernel does the same under Deno as under Bun", () => {
  const printed = run(process.execPath, "pure.ts");
  const { failures, lint, converted } = JSON.parse(printed);
  expect(failures).toEqual([
    expect.stringContaining('Cannot find network "absent"'),
    "SyntaxError: Cannot parse net.d/bad.conflist:2:16, in plugins[0]: value expected",
  ]);
  expect(lint.problems.map(({ rule, line }: { rule: string; line: number }) => [rule, line])).toContainEqual([
    "unknown-key",
    4,
  ]);
  expect(converted).toEqual({ cniVersion: "0.2.0", ip4: { ip: "10.1.0.2/24" }, dns: {} });
  expect(JSON.parse(runUnderDeno("pure.ts"))).toEqual(JSON.parse(printed));
});

testWith(["npm"], "what needs the kernel is one clear error under Deno", () => {
  const lines = runUnderDeno("kernel.ts").trim().split("\n");
  expect(lines.slice(0, 10)).toEqual(
    Array(10).fill(expect.stringMatching(/Cannot call [\w ]+ under Deno: run .* Bun/)),
  );
  expect(lines.pop()).toBe("1");
  expect(JSON.parse(lines.slice(10).join("\n")).msg).toMatch(/Cannot call [\w ]+ under Deno/);
});

testWith(["npm"], "npm pack and deno publish take what mod.ts needs, and no tests", () => {
  const env = { ...process.env, NO_COLOR: "1" };
  const inRepository = (...command: string[]) => {
    const { stdout, stderr } = Bun.spawnSync(command, { cwd: REPOSITORY_ROOT, stderr: "pipe", env });
    return `${stdout}${stderr}`;
  };
  const [packed] = JSON.parse(inRepository("npm", "pack", "--dry-run", "--json", "--loglevel=silent"));
  const published = inRepository(DENO, "publish", "--dry-run", "--allow-dirty", "--no-check");
  const lists = {
    npm: packed.files.map(({ path }: { path: string }) => path) as string[],
    deno: [...published.matchAll(/^ +file:\/\/(\S+) /gm)].map(([, path = ""]) =>
      path.slice(REPOSITORY_ROOT.length + 1)
    ),
  };
  expect(published).toContain("Dry run complete");
  expect(published).toContain(`Simulating publish of ${packed.id} with files`);
  for (const files of Object.values(lists)) {
    expect(reachable().files.filter((path) => !files.includes(path))).toEqual([]);
    expect(files.filter((path) => /_test\.ts$|fixture\.ts$|^(cmd|e2e|scripts|testing|testdata|bench)/.test(path)))
      .toEqual(
        [],
      );
    expect(files).toContain("LICENSE");
  }
}, 60_000);
