/** The states of a node in which commands are tried. @module */
import { cleanNode } from "./node.ts";
import { ofContainers, tracesOf } from "./traces.ts";
import type { Container, Verb, Way } from "./way.ts";

/** What a command finds, and what it is to leave. */
export interface Situation {
  readonly verb: Verb;
  /** Who the command is called for; of GC, who stays. */
  readonly subject: Container;
  /** Makes it so, whatever was before. */
  prepare(way: Way): void;
  /** What is there, without what may stay when the container is gone. */
  look(): readonly string[];
  /** Whether another container lives on the node. */
  readonly inhabited: boolean;
}

/** A container that was there before, and is to be left alone. */
export const RESIDENT: Container = { id: "resident", netns: "/run/netns/resident", port: 8000 };
/** The one that things go wrong with. */
export const SUBJECT: Container = { id: "subject", netns: "/run/netns/subject", port: 8001 };

const NAMESPACES = ["resident", "subject"];

/** A command on a node where everything that containers share is there. */
function beside(verb: Verb, subject = SUBJECT): Situation {
  return {
    verb,
    subject,
    inhabited: true,
    prepare(way) {
      cleanNode(NAMESPACES);
      must(way, "add", RESIDENT);
      // Once there and back, so that what containers share is in its final state: the MTU of the bridge, the last address given.
      must(way, "add", SUBJECT);
      must(way, "del", SUBJECT);
    },
    look: () => tracesOf(NAMESPACES),
  };
}

/** By name. */
export const SITUATIONS = {
  "first-add": {
    verb: "add",
    subject: SUBJECT,
    inhabited: false,
    prepare: () => cleanNode(NAMESPACES),
    look: () => ofContainers(tracesOf(NAMESPACES)),
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
