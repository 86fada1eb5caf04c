/** The package of the library, installed by npm into an empty project: examples run, have types, and become a program. */
import { afterAll, beforeAll, expect } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { libraryPackage } from "../scripts/src/release/library.ts";
import { REPOSITORY_ROOT } from "../scripts/src/repository.ts";
import { ENGINE_ENV, testWith } from "../testing/binary.ts";
import { createNetns } from "../ffi/netns.ts";

const PLUGIN = `import { main, plugin, schema } from "@cni/cni";

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
const PURE = `import { convertResult, parseNetworkConfigList, parseResult } from "@cni/cni";

const list = parseNetworkConfigList('{"cniVersion":"1.0.0","name":"a","plugins":[{"type":"loopback"}]}', "a.conflist");
const result = parseResult({ cniVersion: "1.1.0", ips: [{ address: "10.1.0.2/24" }] }, "1.1.0");
console.log(list.name, JSON.stringify(convertResult(result, "0.2.0")));
`;

let project = "";
beforeAll(() => {
  project = mkdtempSync(join(tmpdir(), "cni-project-"));
  writeFileSync(join(project, "cni.tgz"), libraryPackage(1e9));
  writeFileSync(join(project, "package.json"), '{ "private": true, "type": "module" }');
  writeFileSync(join(project, "greet.ts"), PLUGIN);
  writeFileSync(join(project, "pure.ts"), PURE);
  // The types of Bun, which each project with Bun has.
  const { devDependencies } = JSON.parse(readFileSync(join(REPOSITORY_ROOT, "package.json"), "utf8"));
  const words = ["--no-audit", "--no-fund", "--loglevel=error", `bun-types@${devDependencies["bun-types"]}`];
  if (Bun.which("npm")) run("npm", "install", ...words, "./cni.tgz");
  const compilerOptions = { strict: true, noEmit: true, types: ["bun-types"], module: "preserve", target: "esnext" };
  const options = {
    ...compilerOptions,
    allowImportingTsExtensions: true,
    moduleResolution: "bundler",
    lib: ["esnext"],
  };
  writeFileSync(
    join(project, "tsconfig.json"),
    JSON.stringify({ compilerOptions: options, files: ["greet.ts", "pure.ts"] }),
  );
}, 60_000);
afterAll(() => rmSync(project, { recursive: true }));

function run(...command: string[]): string {
  const { exitCode, stdout, stderr } = Bun.spawnSync(command, { cwd: project, stderr: "pipe" });
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

testWith(["npm"], "what needs no kernel works", () => {
  expect(run(process.execPath, "pure.ts")).toBe('a {"cniVersion":"0.2.0","ip4":{"ip":"10.1.0.2/24"},"dns":{}}\n');
});

testWith(["npm"], "the project has the right types", () => {
  run(process.execPath, "check");
  writeFileSync(join(project, "pure.ts"), PURE.replace('"0.2.0"', "2"));
  expect(() => run(process.execPath, "check")).toThrow("pure.ts");
}, 60_000);
