/** The calls that have a budget: every verb of every plugin in a typical configuration, and a whole chain. @module */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { createNetns, type Netns } from "../../../ffi/netns/netns.ts";
import { loadFixtures } from "../../../testing/fixture.ts";
import { kernelHasLinkKind, runIp } from "../../../testing/netns.ts";

/** Where firewalld runs, calls ask it more. */
const NO_FIREWALLD = { DBUS_SYSTEM_BUS_ADDRESS: "unix:path=/run/absent" };

export interface MeasuredCall {
  /** The name that it is called by. */
  readonly name: string;
  readonly argv: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  readonly stdin: string;
  readonly host: Netns;
}

/** Makes a call, counted or not, and gives what it printed. `verb` is that of the budget. */
export type RunMeasuredCall = (verb: string, call: MeasuredCall) => string;

/** One container from ADD to GC on a host of its own; what is to be counted goes by `counted`, the rest by `plain`. */
export type CostRound = (counted: RunMeasuredCall, plain: RunMeasuredCall) => void;

const FIXTURES = await loadFixtures();

/** A host with what {@linkcode TypicalUse.config} may count on. */
function newHost(scope: DisposableStack): Netns {
  const host = scope.use(createNetns());
  for (const name of ["wire", "device"]) {
    runIp(host, `link add ${name}0 type veth peer name ${name}1`, `link set ${name}0 up`, `link set ${name}1 up`);
  }
  return host;
}

const containerId = (round: number): string => `container-${String(round).padStart(3, "0")}`;

/** Rounds of a plugin. @param state a directory that is removed after the measurement */
export function pluginRounds(scope: DisposableStack, state: string, name: string): CostRound {
  const { linkKind, ifname = "eth0", typical } = FIXTURES[name]!;
  const { config: makeConfig, isChained, serve, needsOthers } = typical;
  const typicalConfig = makeConfig(state);
  const bridgeConfig = FIXTURES["bridge"]!.typical.config(state);
  const attaches = !needsOthers && (linkKind === undefined || kernelHasLinkKind(linkKind));
  const host = newHost(scope);
  if (serve) scope.use(serve(host, state));
  let rounds = 0;
  return (counted, plain) => {
    const { path } = scope.use(createNetns());
    const attachment = { CNI_CONTAINERID: containerId(rounds++), CNI_NETNS: path, CNI_IFNAME: ifname };
    const call = (type: string, verb: string, config: object): MeasuredCall => ({
      name: type,
      argv: [],
      env: { ...NO_FIREWALLD, CNI_COMMAND: verb, ...attachment, CNI_PATH: "/nonexistent" },
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
}

export function chainRounds(scope: DisposableStack, state: string): CostRound {
  const typical = ["bridge", "portmap", "firewall", "tuning"].map((type) => ({
    type,
    ...FIXTURES[type]!.typical.config(state),
  }));
  const capabilityArgs = Object.assign({}, ...typical.map(({ runtimeConfig }) => runtimeConfig));
  const plugins = typical.map(({ runtimeConfig: _, ...config }) => config);
  const file = join(state, "chain.conflist");
  writeFileSync(file, JSON.stringify({ cniVersion: "1.1.0", name: "chain", plugins }));
  const host = newHost(scope);
  const directories = ["--cache-dir", join(state, "cache"), "--plugin-dir", join(state, "none")];
  let rounds = 0;
  return (counted) => {
    const container = scope.use(createNetns());
    const attachment = [container.path, "--container-id", containerId(rounds++)];
    const callOf = (verb: string, ...more: readonly string[]) => {
      const argv = ["run", verb.toLowerCase(), file, ...more, ...directories];
      counted(verb, { name: "cni", argv, env: NO_FIREWALLD, stdin: "", host });
    };
    callOf("STATUS");
    const capabilities = ["--cap-args", JSON.stringify(capabilityArgs)];
    for (const verb of ["ADD", "CHECK", "DEL"]) callOf(verb, ...attachment, ...capabilities);
    callOf("GC", "--all");
  };
}
