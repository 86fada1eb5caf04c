/**
 * Runs the command line from its sources, with configurations, plugins and a cache that belong to one test.
 *
 * @module
 */
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { CliContext } from "../program/start.ts";
import type { Netns } from "../ffi/netns/netns.ts";
import { type FinishedProcess, finishedProcess, type ProcessStart } from "./binary.ts";

/** The surroundings of a command line in `/base`. */
export const cliContext = (env: Readonly<Record<string, string>>): CliContext => ({
  env,
  programName: "cni",
  findWorkingDirectory: () => "/base",
  findParentPid: () => 1,
  startTime: 0n,
});

const CLI_ENTRY = join(import.meta.dir, "../cmd/cni.ts");

/** Everything that `cni run` works with. */
export interface CliSandbox {
  /** The directory with the networks' files. */
  readonly conf: string;
  /** The directory with the plugins' programs. */
  readonly bin: string;
  /** Directory of the attachment cache. */
  readonly cache: string;
  /** Names of files in the cache. @throws {Error} `ENOENT` before anything was attached */
  entries(): string[];
  /** Addresses that are reserved for the network. */
  reservations(name: string): string[];
  /** The words behind `cni run`. */
  command(argv: string): string[];
  /** Runs `cni run`; `argv` is split at spaces. */
  run(argv: string, start?: ProcessStart): FinishedProcess;
  /** Puts a program into the plugin directory. */
  plugin(name: string, script: string): void;
  /** Writes a network of the bridge plugin. */
  network(name: string, bridge?: string): void;
}

/**
 * Makes sandboxes below one directory, `root`, which the caller removes. `cni` runs the command line with any words, and ends it after 20 s;
 * `bench` gives another sandbox on a host.
 */
export function newCliSandboxes() {
  const root = mkdtempSync(join(tmpdir(), "cni-cli-"));
  let states = 0;
  const cni = (argv: readonly string[], { stdin, env, wrapper = [] }: ProcessStart = {}): FinishedProcess => {
    const child = Bun.spawnSync([...wrapper, process.execPath, CLI_ENTRY, ...argv], {
      cwd: root,
      env: { PATH: process.env.PATH!, ...env },
      stdin: stdin === undefined ? "ignore" : Buffer.from(stdin),
      timeout: 50_000,
    });
    return finishedProcess(child);
  };
  return { root, cni, bench: (host: Netns): CliSandbox => newCliSandbox(join(root, String(states++)), host, cni) };
}

function newCliSandbox(
  state: string,
  host: Netns,
  cni: (argv: readonly string[], start?: ProcessStart) => FinishedProcess,
): CliSandbox {
  const [conf, bin, cache] = ["conf", "bin", "cache"].map((name) => join(state, name)) as [string, string, string];
  for (const path of [conf, bin]) mkdirSync(path, { recursive: true });
  const wordsOf = (argv: string) => [
    "run",
    ...argv.split(" "),
    `--conf-dir=${conf}`,
    `--plugin-dir=${bin}`,
    `--cache-dir=${cache}`,
  ];
  return {
    conf,
    bin,
    cache,
    entries: () => readdirSync(join(cache, "results")),
    reservations: (name) => readdirSync(join(state, "ipam", name)).filter((fileName) => /^[0-9]/.test(fileName)),
    command: (argv) => [process.execPath, CLI_ENTRY, ...wordsOf(argv)],
    run: (argv, start) => host.run(() => cni(wordsOf(argv), start)),
    plugin: (name, script) => {
      writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`);
      chmodSync(join(bin, name), 0o755);
    },
    network: (name, bridge = "br9") => {
      const ipam = { type: "host-local", dataDir: join(state, "ipam"), ranges: [[{ subnet: "10.9.0.0/24" }]] };
      const plugins = [{ type: "bridge", bridge, ipam }];
      writeFileSync(join(conf, `${name}.conflist`), JSON.stringify({ cniVersion: "1.1.0", name, plugins }));
    },
  };
}
