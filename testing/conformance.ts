/**
 * Surroundings of the tests in e2e/conformance/: a runtime over plugins that only record how they are called, and a node with a container
 * on which every plugin of this binary is called in this process, as a program, and by `cni run`.
 *
 * Each of those tests is named after an id of testdata/conformance/checklist.tsv, followed by the statement that stands there.
 *
 * @module
 */
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { loadFixtures, testedPlugins } from "./fixture.ts";
import { sampleOf } from "./sample.ts";
import type { JsonDocument } from "./json_document.ts";
import { kernelHasLinkKind, type Namespaces, newNamespaces, newNetns } from "./netns.ts";
import type { ProgramCall } from "../plugins/lib/protocol/exec.ts";
import type { ProgramOutput } from "../plugins/lib/protocol/response.ts";
import type { AnyPlugin, HostContext } from "../plugins/lib/protocol/context.ts";
import { findPlugin, loadPlugins } from "../plugins/registry.ts";
import type { Attachment } from "../spec/plugin_config.ts";
import { type NetworkConfigList, parseNetworkConfigList } from "../spec/network_config_list.ts";
import type { Result } from "../spec/result.ts";
import { gcNetworkList } from "../runtime/gc.ts";
import { addNetworkList, type AddRuntimeConf } from "../runtime/add.ts";
import { checkNetworkList } from "../runtime/check.ts";
import { delNetworkList } from "../runtime/del.ts";
import { getNetworkListStatus } from "../runtime/status.ts";
import { newHostContext, newRequest, newRuntimeContext, requestText, respond } from "./plugin_call.ts";
import { CNI_UNDER_TEST, type FinishedProcess, finishedProcess, pluginLink, runPlugin, SERVER_ENV } from "./binary.ts";

await loadPlugins();

const FIXTURES = await loadFixtures();

/** The names of the tested plugins that work on this kernel; the others are tested in the virtual machine. */
export const SUPPORTED_PLUGINS: readonly string[] = testedPlugins().filter((name) => {
  const { linkKind, typical: { needsOthers } } = FIXTURES[name]!;
  if (needsOthers && !isFileForSlowPlugins(basename(Bun.main))) return false;
  return linkKind === undefined || kernelHasLinkKind(linkKind);
});

/** Without words, `scripts/test` tries plugins whose ADD waits for other programs in every third file of the suite. */
function isFileForSlowPlugins(file: string): boolean {
  const files = readdirSync(join(import.meta.dir, "../e2e/conformance")).filter((name) => name.endsWith("_test.ts"));
  return !files.includes(file) || sampleOf(files.sort()).includes(file);
}

/** A network with plugin `a` and, behind it, plugin `b`, which declares a capability. */
export function twoPluginNetwork(options: Readonly<Record<string, unknown>> = {}): NetworkConfigList {
  const plugins = [{ type: "a" }, { type: "b", capabilities: { ports: true } }];
  return parseNetworkConfigList(JSON.stringify({ cniVersion: "1.1.0", name: "web", plugins, ...options }));
}

/** The attachment that the tests of the runtime are about. */
export const ATTACHMENT = { containerId: "c1", ifname: "eth0" };
/** The same with the path of a namespace, which nobody opens. */
export const ATTACHMENT_WITH_NETNS = { ...ATTACHMENT, netns: "/run/netns/x" };

/** A call as a plugin saw it. */
export interface RecordedCall {
  readonly type: string;
  readonly command: string;
  readonly env: ProgramCall["env"];
  readonly config: JsonDocument;
}

/** A runtime with a cache of its own. Plugins answer ADD with one address more than they got; one called `missing` is not there. */
export interface RuntimeSandbox extends Disposable {
  readonly calls: RecordedCall[];
  readonly log: string[];
  /** Where the runtime keeps its cache. */
  readonly directory: string;
  /** Replaces the program for `type COMMAND`. */
  readonly answers: Record<string, (request: ProgramCall) => ProgramOutput>;
  /** Lets each call `type COMMAND` fail from now on. */
  fail(call: string, code: number, msg: string): void;
  add(list: NetworkConfigList, more?: Partial<AddRuntimeConf>): Result;
  del(network: NetworkConfigList | string, more?: Partial<AddRuntimeConf>): void;
  check(network: NetworkConfigList | string, more?: Partial<AddRuntimeConf>): void;
  gc(list: NetworkConfigList, valid?: readonly Attachment[]): void;
  status(list: NetworkConfigList): void;
  /** `a ADD`, `b ADD` since the last time. */
  takeCalls(): string[];
}

/** Makes a runtime whose cache is removed with it. */
export function newRuntimeSandbox(): RuntimeSandbox {
  const directory = mkdtempSync(join(tmpdir(), "cni-conformance-"));
  const calls: RecordedCall[] = [];
  const log: string[] = [];
  const answers: RuntimeSandbox["answers"] = {};
  const options = newRuntimeContext({
    programs(type, call) {
      calls.push({ type, command: call.command, env: call.env, config: JSON.parse(call.stdin) });
      return answers[`${type} ${call.command}`]?.(call) ?? resultWithOneMoreIp(call);
    },
    missing: ["missing"],
    pluginDirectories: ["/a", "/b"],
    cacheDirectory: directory,
    env: { PATH: "/bin", CNI_IFNAME: "stray" },
    log,
  });
  return {
    calls,
    log,
    directory,
    answers,
    fail: (call, code, msg) => answers[call] = () => ({ exitCode: 1, stdout: JSON.stringify({ code, msg }) }),
    add: (list, extraParameters) => addNetworkList(options, list, { ...ATTACHMENT_WITH_NETNS, ...extraParameters }),
    del: (list, extraParameters) => delNetworkList(options, list, { ...ATTACHMENT, ...extraParameters }),
    check: (list, extraParameters) => checkNetworkList(options, list, { ...ATTACHMENT, ...extraParameters }),
    gc: (list, valid = []) => gcNetworkList(options, list, valid),
    status: (list) => getNetworkListStatus(options, list),
    takeCalls: () => calls.splice(0).map(({ type, command }) => `${type} ${command}`),
    [Symbol.dispose]: () => rmSync(directory, { recursive: true, force: true }),
  };
}

function resultWithOneMoreIp({ command, stdin }: ProgramCall): ProgramOutput {
  if (command !== "ADD") return { exitCode: 0, stdout: "" };
  const { prevResult } = JSON.parse(stdin);
  const ips = prevResult?.ips ?? [];
  const address = `10.0.0.${ips.length + 1}/24`;
  return { exitCode: 0, stdout: JSON.stringify({ cniVersion: "1.1.0", ips: [...ips, { address }] }) };
}

/** The attachment that a call is for. */
export interface NodeCallOptions {
  readonly containerId?: string;
  readonly ifname?: string;
  /** The container's namespace; that of the node unless told, none if `null`. */
  readonly netns?: Netns | string | null;
  readonly env?: Readonly<Record<string, string>>;
}

/** A host with a container, and the plugins of this binary. */
export interface ConformanceNode extends Namespaces {
  /** For state; removed with the node. */
  readonly directory: string;
  /** The lines that plugins logged. */
  readonly log: string[];
  newContainer(): Netns;
  /** Ends something with the node. */
  defer(end: () => void): void;
  /** Calls a plugin in this process, as every plugin is called. */
  call(type: string, verb: string, config: object, options?: NodeCallOptions): ProgramOutput;
  /** The same, and it must succeed; gives what it printed, `{}` for nothing. */
  succeed(type: string, verb: string, config: object, options?: NodeCallOptions): JsonDocument;
  /** The same, and it must fail; gives the error object. */
  fail(type: string, verb: string, config: object, options?: NodeCallOptions): JsonDocument;
  /** Calls a plugin as a program of its own, which the compiled binary is. */
  exec(type: string, verb: string, config: object | string, options?: NodeCallOptions): FinishedProcess;
  /** Runs `cni run …` with a cache and a plugin directory of the node's own. */
  run(...words: string[]): FinishedProcess;
  /** Puts a shell script into the first plugin directory, or into the second, `bin2`. */
  program(name: string, script: string, directory?: "bin" | "bin2"): void;
  /** Puts one there that writes down `env` and `stdin` of each command, and answers ADD with `result`. */
  recorder(name: string, result?: object): RecordedProgram;
  /** Writes a file with a network list; gives its path. */
  file(list: object): string;
}

/** The input of a program; absent if it was not called. */
export interface RecordedProgram {
  env(command: string): Readonly<Record<string, string>> | undefined;
  stdin(command: string): JsonDocument;
}

/** Makes a node, whose namespaces and files go with it. @param extraPlugins found before those of the binary */
export function newConformanceNode(extraPlugins: readonly AnyPlugin[] = []): ConformanceNode {
  const resources = new DisposableStack();
  const namespaces = resources.use(newNamespaces());
  const directory = mkdtempSync(join(tmpdir(), "cni-conformance-"));
  resources.defer(() => rmSync(directory, { recursive: true, force: true }));
  for (const folder of ["bin", "bin2"]) mkdirSync(join(directory, folder));
  const log: string[] = [];
  const findTestPlugin = (name: string) => extraPlugins.find((folder) => folder.name === name) ?? findPlugin(name);
  const context = newHostContext({ host: namespaces.host, findPlugin: findTestPlugin, log });
  const variables = variablesFor(directory, namespaces.container);
  return {
    ...namespaces,
    directory,
    log,
    newContainer: () => resources.use(newNetns()),
    defer: (end) => resources.defer(end),
    ...pluginCalls(context, findTestPlugin, variables),
    ...processCalls(namespaces.host, directory, variables),
    ...nodeFiles(directory),
    [Symbol.dispose]: () => resources.dispose(),
  };
}

type Variables = (verb: string, options?: NodeCallOptions) => Record<string, string>;

function variablesFor(directory: string, container: Netns): Variables {
  return (verb, { containerId = "c1", ifname = "eth0", netns = container, env = {} } = {}) => ({
    CNI_COMMAND: verb,
    CNI_CONTAINERID: containerId,
    CNI_IFNAME: ifname,
    CNI_NETNS: netns === null ? "" : typeof netns === "string" ? netns : netns.path,
    CNI_PATH: `${directory}/bin:${join(pluginLink("host-local"), "..")}`,
    CNI_ARGS: "",
    ...env,
  });
}

function pluginCalls(
  context: HostContext,
  find: (name: string) => AnyPlugin | undefined,
  variables: Variables,
): Pick<ConformanceNode, "call" | "succeed" | "fail"> {
  const call: ConformanceNode["call"] = (type, verb, config, options) =>
    respond(find(type)!, newRequest(type, verb, config, { env: variables(verb, options) }), context);
  return {
    call,
    succeed(...args) {
      const { exitCode, stdout } = call(...args);
      if (exitCode !== 0) throw new Error(`${args[0]} ${args[1]} failed: ${stdout}`);
      return stdout === "" ? {} : JSON.parse(stdout);
    },
    fail(...args) {
      const { exitCode, stdout } = call(...args);
      if (exitCode !== 1) throw new Error(`${args[0]} ${args[1]} did not fail: ${stdout}`);
      return JSON.parse(stdout);
    },
  };
}

function processCalls(host: Netns, directory: string, variables: Variables): Pick<ConformanceNode, "exec" | "run"> {
  return {
    exec(type, verb, config, options) {
      const stdin = typeof config === "string" ? config : requestText(type, config);
      return host.run(() => runPlugin(type, { env: variables(verb, options), stdin }));
    },
    run(...words) {
      const directories = ["--cache-dir", `${directory}/cache`, "--plugin-dir", `${directory}/bin:${directory}/bin2`];
      const command = [CNI_UNDER_TEST, "run", ...words, ...directories];
      const child = host.run(() => Bun.spawnSync(command, { env: { PATH: "/usr/bin:/bin", ...SERVER_ENV }, cwd: "/" }));
      return finishedProcess(child);
    },
  };
}

function nodeFiles(directory: string): Pick<ConformanceNode, "program" | "recorder" | "file"> {
  let files = 0;
  const program: ConformanceNode["program"] = (name, script, where = "bin") => {
    const path = join(directory, where, name);
    writeFileSync(path, `#!/bin/sh\n${script}\n`);
    chmodSync(path, 0o755);
  };
  return {
    program,
    recorder(name, result = {}) {
      const record = `env >"$0.$CNI_COMMAND.env"; cat >"$0.$CNI_COMMAND.stdin"`;
      program(name, `${record}\n[ "$CNI_COMMAND" != ADD ] || cat <<'END'\n${JSON.stringify(result)}\nEND`);
      return recorderAt(join(directory, "bin", name));
    },
    file(list) {
      const path = join(directory, `${files++}.conflist`);
      writeFileSync(path, JSON.stringify(list));
      return path;
    },
  };
}

function recorderAt(path: string): RecordedProgram {
  const find = (command: string, what: string) => {
    try {
      return readFileSync(`${path}.${command}.${what}`, "utf8");
    } catch {
      return undefined;
    }
  };
  return {
    env(command) {
      const lines = find(command, "env")?.trimEnd().split("\n");
      return lines && Object.fromEntries(lines.map((line) => line.split(/=(.*)/s) as [string, string]));
    },
    stdin(command) {
      const text = find(command, "stdin");
      return text === undefined ? undefined : JSON.parse(text);
    },
  };
}

/** A configuration with which a plugin does all that it is for, and the parameters of its calls. */
export interface WorkingConfig {
  readonly config: JsonDocument;
  readonly options: NodeCallOptions;
}

/** Prepares a node for a plugin as its fixture says, and gives the configuration. */
export function workingConfig(type: string, node: ConformanceNode): WorkingConfig {
  const { working, ifname } = FIXTURES[type]!;
  return { config: working(node), options: ifname === undefined ? {} : { ifname } };
}

/** The status of a command that has to wait. */
export const WAITS = 200;
/** The function `beside` of a shell script: runs a command to its end, or until it waits for a lock; then it is ended. */
export const BESIDE = `beside() {
  "$@" >&2 &
  until grep -q -- "-> FLOCK .* $! " /proc/locks; do
    case $(cut -d " " -f 3 "/proc/$!/stat" 2>&-) in Z | "") wait $!; return ;; esac
    sleep 0.01
  done
  kill $!
  wait $!
  return ${WAITS}
}`;
