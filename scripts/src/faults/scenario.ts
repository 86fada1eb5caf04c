/** The states of a node in which commands are tried. @module */
import { cleanNode, sh } from "../harness/node.ts";
import { comparable, ofContainers, tracesOf } from "../harness/node_state.ts";
import { type Container, FREE_ADDRESSES, type Verb, type Way } from "./invocation.ts";

/** What a command finds, and what it is to leave. */
export interface Situation {
  readonly verb: Verb;
  /** Who the command is called for; of GC, who stays. */
  readonly subject: Container;
  /** Makes it so, whatever was before. */
  prepare(way: Way): void;
  /** What is there, without what may stay when the container is gone. */
  look(): readonly string[];
  /** What there is after an ADD and a DEL that nothing interrupted. */
  lookAtRest(): readonly string[];
  /** Whether another container lives on the node. */
  readonly inhabited: boolean;
  /** How many addresses of each family nobody has. */
  readonly free: number;
}

/** A container that was there before, and is to be left alone. */
export const RESIDENT: Container = { id: "resident", netns: "/run/netns/resident", port: 8000 };
/** The one that things go wrong with. */
export const SUBJECT: Container = { id: "subject", netns: "/run/netns/subject", port: 8001 };

const NAMESPACES = ["resident", "subject"];

/** Somebody else's, in which the firewall has to be let through. */
const FOREIGN_FIREWALL = ["ip", "ip6", "inet"].map((family) =>
  `nft 'table ${family} foreign { chain forward { type filter hook forward priority 0; policy drop; }; }'`
).join("\n");

/** A command on a node where everything that containers share is there. */
function beside(verb: Verb, subject = SUBJECT): Situation {
  return {
    verb,
    subject,
    inhabited: true,
    free: FREE_ADDRESSES,
    prepare(way) {
      cleanNode(NAMESPACES);
      sh(FOREIGN_FIREWALL);
      must(way, "add", RESIDENT);
      // Once there and back, so that what containers share is in its final state: the MTU of the bridge, the last address given.
      must(way, "add", SUBJECT);
      must(way, "del", SUBJECT);
    },
    look: () => tracesOf(NAMESPACES),
    lookAtRest: () => tracesOf(NAMESPACES),
  };
}

/** By name. */
export const SITUATIONS = {
  "first-add": {
    verb: "add",
    subject: SUBJECT,
    inhabited: false,
    free: FREE_ADDRESSES + 1,
    prepare: () => cleanNode(NAMESPACES),
    look: () => ofContainers(tracesOf(NAMESPACES)),
    lookAtRest: () => comparable(tracesOf(NAMESPACES)),
  },
  add: beside("add"),
  del: beside("del"),
  gc: beside("gc", RESIDENT),
} as const satisfies Record<string, Situation>;

/** Carries out a command that nothing is wrong with. @throws {Error} with what it said, if it fails */
export function must(way: Way, verb: Verb, container: Container): string {
  const { exitCode, stdout, stderr } = way.call(verb, container);
  if (exitCode !== 0) throw new Error(`${verb} ended with ${exitCode}: ${stdout}${stderr}`);
  return stdout;
}
