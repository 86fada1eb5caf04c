/**
 * A container that asks a server of names without a pause.
 *
 * @module
 */
import type { Netns } from "../ffi/netns/netns.ts";

export interface DnsQuestions {
  readonly count: number;
  /** So many are on their way at a time: fewer than a socket's buffer takes. */
  readonly window: number;
  /** The names, asked in turn. */
  readonly names: readonly string[];
}

/** Then, the missing answers are lost. */
const PATIENCE_MS = 20_000;

/** Asks 10.88.0.1. @returns how long each answer with an address took, in milliseconds */
export async function askWithoutPause(netns: Netns, { count, window, names }: DnsQuestions): Promise<number[]> {
  const done = Promise.withResolvers<void>();
  const sentAt = new Map<number, number>();
  const durations: number[] = [];
  let sent = 0;
  let send = () => {};
  const { pending } = netns.run(() => ({
    pending: Bun.udpSocket({
      connect: { hostname: "10.88.0.1", port: 53 },
      socket: {
        error() {},
        data(_, answer) {
          const id = answer[0]! << 8 | answer[1]!;
          const start = sentAt.get(id);
          if (start === undefined || answer[7] !== 1) return;
          sentAt.delete(id);
          durations.push(performance.now() - start);
          if (durations.length === count) done.resolve();
          if (sent < count) send();
        },
      },
    }),
  }));
  const socket = await pending;
  send = () => {
    const id = sent & 0xffff;
    sentAt.set(id, performance.now());
    socket.send(questionFor(names[sent++ % names.length]!, id));
  };
  while (sent < Math.min(window, count)) send();
  await Promise.race([done.promise, Bun.sleep(PATIENCE_MS)]);
  socket.close();
  return durations;
}

/** A question for the IPv4 addresses of `name`. */
function questionFor(name: string, id: number): Uint8Array {
  const labels = name.split(".").flatMap((label) => [label.length, ...Buffer.from(label)]);
  return Uint8Array.from([id >> 8, id & 255, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, ...labels, 0, 0, 1, 0, 1]);
}
