/** A TCP connection that carries large segments both ways the whole time. @module */
import type { Netns } from "../ffi/netns/netns.ts";
import type { Ip } from "../ffi/address.ts";
import { openInNetns } from "./traffic.ts";

export interface EchoedBlocks extends Disposable {
  /** How many have come back as they were sent. */
  readonly count: number;
  /** Why no more will come. */
  readonly end: string | undefined;
}

const BLOCK = crypto.getRandomValues(new Uint8Array(32 * 1024));

interface Peer {
  rest: Uint8Array;
}

/** Sends a block after the other from one namespace to an address of another, each when the last one has come back. */
export async function echoBlocks(from: Netns, to: Netns, address: Ip): Promise<EchoedBlocks> {
  using building = new DisposableStack();
  const listener = to.run(() =>
    Bun.listen<Peer>({
      hostname: "::",
      port: 0,
      socket: {
        open: (socket) => void (socket.data = { rest: new Uint8Array() }),
        data: (socket, piece) => send(socket, piece),
        drain: (socket) => send(socket),
      },
    }) as never
  ) as unknown as Bun.TCPSocketListener<Peer>;
  building.defer(() => listener.stop(true));
  let count = 0;
  let at = 0;
  let end: string | undefined;
  const socket = await openInNetns(from, () =>
    Bun.connect<Peer>({
      hostname: address,
      port: listener.port,
      socket: {
        open(opened) {
          opened.data = { rest: new Uint8Array() };
          send(opened, BLOCK);
        },
        data(opened, piece) {
          if (!piece.equals(BLOCK.subarray(at, at + piece.length))) end ??= `other bytes after block ${count}`;
          at += piece.length;
          if (at < BLOCK.length) return;
          at = 0;
          count++;
          send(opened, BLOCK);
        },
        drain: (opened) => send(opened),
        close: () => void (end ??= "closed"),
        error: (_, { message }) => void (end ??= message),
      },
    }));
  building.defer(() => socket.terminate());
  const owned = building.move();
  return {
    get count() {
      return count;
    },
    get end() {
      return end;
    },
    [Symbol.dispose]: () => owned.dispose(),
  };
}

/** What does not fit waits. */
function send(socket: Bun.Socket<Peer>, piece: Uint8Array = new Uint8Array()): void {
  const all = Buffer.concat([socket.data.rest, piece]);
  socket.data.rest = all.subarray(Math.max(0, socket.write(all)));
}
