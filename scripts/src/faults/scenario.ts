/** The states of a node in which commands are tried. @module */
import { type ProgramEnd, resetNode, runShell } from "../harness/node.ts";
import { containerState, snapshotNode, withoutVolatile } from "../harness/node_state.ts";
import { type FaultContainer, type FaultVerb, FREE_ADDRESSES, type Invocation } from "./invocation.ts";

/** What a command finds, and what it is to leave. */
export interface Scenario {
  readonly verb: FaultVerb;
  /** Who the command is called for; of GC, who stays. */
  readonly container: FaultContainer;
  /** Makes it so, whatever was before. */
  prepare(way: Invocation): void;
  /** What is there, without what may stay when the container is gone. */
  snapshot(): readonly string[];
  /** What there is after an ADD and a DEL that nothing interrupted. */
  snapshotAfterDel(): readonly string[];
  /** Whether another container lives on the node. */
  readonly hasResident: boolean;
  /** How many addresses of each family nobody has. */
  readonly freeAddresses: number;
}

/** A container that was there before, and is to be left alone. */
export const RESIDENT_CONTAINER: FaultContainer = { id: "resident", netns: "/run/netns/resident", port: 8000 };
/** The one that things go wrong with. */
export const TEST_CONTAINER: FaultContainer = { id: "subject", netns: "/run/netns/subject", port: 8001 };

const NAMESPACES = ["resident", "subject"];

/** Somebody else's, in which the firewall has to be let through. */
const FOREIGN_FIREWALL = ["ip", "ip6", "inet"].map((family) =>
  `nft 'table ${family} foreign { chain forward { type filter hook forward priority 0; policy drop; }; }'`
).join("\n");

/** A command on a node where everything that containers share is there. */
function withResident(verb: FaultVerb, container = TEST_CONTAINER): Scenario {
  return {
    verb,
    container,
    hasResident: true,
    freeAddresses: FREE_ADDRESSES,
    prepare(way) {
      resetNode(NAMESPACES);
      runShell(FOREIGN_FIREWALL);
      mustSucceed(way, "add", RESIDENT_CONTAINER);
      // Once there and back, so that what containers share is in its final state: the MTU of the bridge, the last address given.
      mustSucceed(way, "add", TEST_CONTAINER);
      mustSucceed(way, "del", TEST_CONTAINER);
    },
    snapshot: () => snapshotNode(NAMESPACES),
    snapshotAfterDel: () => snapshotNode(NAMESPACES),
  };
}

/** By name. */
export const SCENARIOS = {
  "first-add": {
    verb: "add",
    container: TEST_CONTAINER,
    hasResident: false,
    freeAddresses: FREE_ADDRESSES + 1,
    prepare: () => resetNode(NAMESPACES),
    snapshot: () => containerState(snapshotNode(NAMESPACES)),
    snapshotAfterDel: () => withoutVolatile(snapshotNode(NAMESPACES)),
  },
  add: withResident("add"),
  del: withResident("del"),
  gc: withResident("gc", RESIDENT_CONTAINER),
} as const satisfies Record<string, Scenario>;

/** Carries out a command that nothing is wrong with. @throws {Error} with what it said, if it fails */
export function mustSucceed(invocation: Invocation, verb: FaultVerb, container: FaultContainer): ProgramEnd {
  const end = invocation.call(verb, container);
  if (end.exitCode !== 0) {
    throw new Error(`${verb} of ${container.id} ended with ${end.exitCode}: ${end.stdout}${end.stderr}`);
  }
  return end;
}
