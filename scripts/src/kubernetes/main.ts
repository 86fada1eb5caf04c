/** The body of `scripts/kubernetes`, see its usage. @module */
import { existsSync, mkdirSync, openSync, readFileSync } from "node:fs";
import { REPOSITORY_ROOT } from "../repository.ts";
import { READY_WORD, runCluster } from "./cluster.ts";
import { KUBERNETES_CACHE } from "./directory.ts";
import {
  clusterLog,
  endCluster,
  findClusterProcess,
  findHolder,
  prepareClusterDirectory,
  rememberHolder,
} from "./holder.ts";
import { ensureClusterImages } from "./images.ts";
import { clusterEnv } from "./kubectl.ts";
import { clusterWords, type KubernetesOptions, parseKubernetesCall } from "./options.ts";
import { ensureKubernetesPrograms, missingGo } from "./programs.ts";
import { replaceProgram } from "./replacement.ts";
import { runSuite } from "./suite.ts";

const { command, words, options } = parseKubernetesCall(process.argv.slice(2));

/** How often what the cluster writes is shown. */
const LOOK_MS = 100;

/** Starts a cluster and waits until it is ready, or until its end. Ctrl-C ends it. */
async function up({ name, ...rest }: KubernetesOptions): Promise<void> {
  const missing = missingGo();
  if (missing !== "") throw new Error(missing);
  if (findHolder(name) !== undefined) {
    throw new Error(`The cluster "${name}" is up: end it with scripts/kubernetes down`);
  }
  await endCluster(name);
  prepareClusterDirectory(name);
  // A place has it if it is there.
  mkdirSync(KUBERNETES_CACHE, { recursive: true });
  const place = process.env["CNI_PLACE"] === undefined ? ["scripts/place", "bare"] : [];
  const log = openSync(clusterLog(name), "a");
  const child = Bun.spawn([...place, "scripts/kubernetes", "hold", ...clusterWords({ name, ...rest })], {
    cwd: REPOSITORY_ROOT,
    // It gets no signal of a terminal.
    detached: true,
    stdio: ["ignore", log, log],
  });
  rememberHolder(name, child.pid);
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const) {
    process.once(signal, async () => {
      await endCluster(name);
      process.exit(130);
    });
  }
  let shown = 0;
  for (;;) {
    const hasEnded = child.exitCode !== null || child.signalCode !== null;
    const text = existsSync(clusterLog(name)) ? readFileSync(clusterLog(name), "utf8") : "";
    process.stdout.write(text.slice(shown));
    shown = text.length;
    if (text.includes(`\n${READY_WORD}`)) break;
    if (hasEnded) {
      await endCluster(name);
      throw new Error("The cluster has ended, see above");
    }
    await Bun.sleep(LOOK_MS);
  }
  child.unref();
}

/** Runs a command among the processes of a cluster. @returns its exit status */
async function enter(name: string, command: readonly string[]): Promise<number> {
  const target = ["nsenter", "--target", `${findClusterProcess(name)}`, "--mount", "--net", "--uts", "--ipc", "--pid"];
  return await Bun.spawn([...target, "env", "-C", "/root/cni", ...command], {
    env: clusterEnv(),
    stdio: ["inherit", "inherit", "inherit"],
  }).exited;
}

/** Is called in a place, with a way to archives and registries. */
function prepare(): void {
  ensureKubernetesPrograms();
  ensureClusterImages();
}

/** Runs this script among the processes of a cluster. */
const inside = (name: string, ...words: readonly string[]): Promise<number> =>
  enter(name, [process.execPath, "scripts/src/kubernetes/main.ts", ...words]);

/** Kubernetes' own tests, in a cluster that ends with them if there is none yet. */
async function test({ name }: KubernetesOptions): Promise<number> {
  const missing = missingGo();
  if (missing !== "") {
    console.log(`skipped: Kubernetes' own tests # ${missing}`);
    console.log("0 passed, 0 failed, 1 skipped");
    return 0;
  }
  const isUp = findHolder(name) !== undefined;
  if (!isUp) await up(options);
  const status = await inside(name, "suite", ...words);
  if (!isUp) await endCluster(name);
  return status;
}

async function load(name: string): Promise<number> {
  const status = await enter(name, [process.execPath, "scripts/src/build/main.ts"]);
  return status === 0 ? await inside(name, "replace") : status;
}

async function carryOut(): Promise<number> {
  const { name } = options;
  switch (command) {
    case "up":
      await up(options);
      return 0;
    case "test":
      return await test(options);
    case "shell":
      return await enter(name, words.length === 0 ? ["sh", "-i"] : words);
    case "load":
      return await load(name);
    case "down":
      await endCluster(name);
      return 0;
    case "prepare":
      prepare();
      return 0;
    case "suite":
      return await runSuite(words[0]);
    case "replace":
      await replaceProgram();
      return 0;
    default:
      return await runCluster(options);
  }
}

try {
  process.exit(await carryOut());
} catch (error) {
  console.error(`scripts/kubernetes: ${(error as Error).message}`);
  process.exit(1);
}
