/**
 * A process that follows the nodes of an API server, and tells what that costs it: `followed_nodes.ts SERVER ACCOUNT
 * EVENTS`. Its first line is about the list, the second about the following events.
 *
 * @module
 */
import { reflect } from "../cluster/api/reflector.ts";
import { KnownNodes } from "../cluster/known_nodes.ts";
import { type ClusterNode, type NodeObject, parseNode, trimNodeEvent } from "../cluster/node.ts";
import { processorMs } from "./fuzz.ts";
import { privateKb } from "./private_memory.ts";

/** What a process of its own has told. */
export interface Cost {
  readonly nodes: number;
  readonly processorMs: number;
  /** Memory that no other process has, at its peak so far. */
  readonly privateKb: number;
}

if (import.meta.main) await follow();

async function follow(): Promise<void> {
  const [server, accountDirectory, events] = process.argv.slice(2) as [string, string, string];
  const known = new KnownNodes("node-0");
  const controller = new AbortController();
  let [started, peakKb, parsed, left] = [processorMs(), 0, 0, Number(events)];
  const look = () => {
    peakKb = Math.max(peakKb, privateKb());
  };
  const tell = () => {
    const spent = processorMs() - started;
    look();
    const cost: Cost = { nodes: [...known.all()].length, processorMs: spent, privateKb: peakKb };
    console.log(JSON.stringify(cost));
    started = processorMs();
  };
  await reflect<ClusterNode>({
    access: { server, accountDirectory },
    path: "/api/v1/nodes",
    kind: "Node",
    trim: trimNodeEvent,
    parse: (object: NodeObject) => {
      // Looking costs a quarter of a millisecond.
      if (left === Number(events) && parsed++ % 100 === 0) look();
      return parseNode(object);
    },
    onList: (nodes) => {
      look();
      if (known.replace(nodes) === "without-own-node") throw new Error("node-0 is missing");
      tell();
      return "taken";
    },
    onEvent: (type, node) => {
      known.apply(type, node);
      if (--left > 0) return;
      tell();
      controller.abort();
    },
    log: console.error,
    signal: controller.signal,
  });
}
