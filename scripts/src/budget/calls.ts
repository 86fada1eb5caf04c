/** The calls that have a budget: every verb of every plugin in a typical configuration, and a whole chain. @module */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns.ts";
import { loadFixtures } from "../../../testing/fixture.ts";
import type { JsonDocument } from "../../../testing/json_document.ts";
import { kernelHasLinkKind, runIp } from "../../../testing/netns.ts";
import { REPOSITORY_ROOT } from "../repository.ts";

/** A call of the program, by whichever means it is started. */
export interface MeasuredCall {
  /** What it is called as. */
  readonly name: string;
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: string;
  readonly host: Netns;
}

/** Makes a call, counted or not, and gives what it printed. `verb` is that of the budget. */
export type RunMeasuredCall = (verb: string, call: MeasuredCall) => string;

/** A host of its own, on which containers come and go. */
export interface CostSubject {
  /** As the budget calls it: a plugin, or `cni run`. */
  readonly name: string;
  /** One container from ADD to GC; what is to be counted goes by `counted`, the rest by `plain`. */
  round(counted: RunMeasuredCall, plain: RunMeasuredCall): void;
}

const FIXTURES = await loadFixtures();

/** A host with what {@linkcode TypicalUse.config} may count on. */
function newHost(scope: DisposableStack): Netns {
  const host = scope.use(createNetns());
  for (const name of ["wire", "device"]) {
    runIp(host, `link add ${name}0 type veth peer name ${name}1`, `link set ${name}0 up`, `link set ${name}1 up`);
  }
  return host;
}

/** The subject for a plugin. @param state a directory that is removed after the measurement */
export function pluginSubject(scope: DisposableStack, state: string, name: string): CostSubject {
  const { linkKind, ifname = "eth0", typical: { config: makeConfig, isChained } } = FIXTURES[name]!;
  const typicalConfig = makeConfig(state);
  const bridgeConfig = FIXTURES["bridge"]!.typical.config(state);
  const attaches = linkKind === undefined || kernelHasLinkKind(linkKind);
  const host = newHost(scope);
  let rounds = 0;
  const round = (counted: RunMeasuredCall, plain: RunMeasuredCall) => {
    const id = `container-${String(rounds++).padStart(3, "0")}`;
    const container = scope.use(createNetns());
    const call = (type: string, verb: string, config: JsonDocument): MeasuredCall => ({
      name: type,
      argv: [],
      env: {
        CNI_COMMAND: verb,
        CNI_CONTAINERID: id,
        CNI_NETNS: container.path,
        CNI_IFNAME: ifname,
        CNI_PATH: "/nonexistent",
      },
      stdin: JSON.stringify({ cniVersion: "1.1.0", name: `budget-${name}`, type, ...config }),
      host,
    });
    const callOf = (verb: string, config: object = {}) =>
      counted(verb, call(name, verb, { ...typicalConfig, ...config }));
    callOf("VERSION");
    callOf("STATUS");
    if (!attaches) return;
    const before = isChained ? { prevResult: JSON.parse(plain("ADD", call("bridge", "ADD", bridgeConfig))) } : {};
    const after = { prevResult: JSON.parse(callOf("ADD", before)) };
    callOf("CHECK", after);
    callOf("DEL", after);
    if (isChained) plain("DEL", call("bridge", "DEL", bridgeConfig));
    callOf("GC", { "cni.dev/valid-attachments": [] });
  };
  return { name, round };
}

/** The subject for a whole chain by one process. */
export function chainSubject(scope: DisposableStack, state: string): CostSubject {
  const typical = ["bridge", "portmap", "firewall", "tuning"].map((type) => ({
    type,
    ...FIXTURES[type]!.typical.config(state),
  }));
  const capabilityArgs = Object.assign({}, ...typical.map(({ runtimeConfig }) => runtimeConfig));
  const plugins = typical.map(({ runtimeConfig: _, ...config }) => config);
  const file = join(state, "chain.conflist");
  writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "chain", plugins }));
  const host = newHost(scope);
  let rounds = 0;
  const round = (counted: RunMeasuredCall) => {
    const id = `container-${String(rounds++).padStart(3, "0")}`;
    const container = scope.use(createNetns());
    const directories = ["--cache-dir", join(state, "cache"), "--plugin-dir", join(state, "none")];
    const ports = ["--cap-args", JSON.stringify(capabilityArgs)];
    const callOf = (verb: string, ...more: readonly string[]) =>
      counted(verb, {
        name: "cni",
        argv: ["run", verb.toLowerCase(), file, ...more, ...directories],
        env: {},
        stdin: "",
        host,
      });
    callOf("STATUS");
    for (const verb of ["ADD", "CHECK", "DEL"]) callOf(verb, container.path, "--container-id", id, ...ports);
    callOf("GC", "--all");
  };
  return { name: "cni run", round };
}

/** The program's sources, for those who do not start the compiled one. */
export const CLI_ENTRY = join(REPOSITORY_ROOT, "cmd/cni.ts");
