/** A program that makes all calls of its standard input at once, and prints the answers: run it in a namespace. @module */
import { connect } from "node:net";

/** A connection or a datagram to a server of `traffic.ts`. */
export interface AskedCall {
  readonly protocol: "tcp" | "udp";
  /** The address to ask from; without it, the kernel chooses. */
  readonly source?: string;
  readonly target: string;
  readonly port: number;
}

const PATIENCE_MS = 3000;
/** A datagram may be lost while the kernel looks for the next hop. */
const REPEAT_MS = 500;

function askTcp({ source, target, port }: AskedCall): Promise<string | null> {
  const { promise, resolve } = Promise.withResolvers<string | null>();
  const socket = connect({ host: target, port, ...source !== undefined && { localAddress: source } });
  let answer = "";
  socket.on("data", (chunk) => void (answer += String(chunk)));
  socket.on("close", () => resolve(answer || null));
  socket.on("error", () => resolve(null));
  const timer = setTimeout(() => resolve(null), PATIENCE_MS);
  return promise.finally(() => {
    clearTimeout(timer);
    socket.destroy();
  });
}

/** From a connected socket: an answer from another address is none. */
async function askUdp({ source, target, port }: AskedCall): Promise<string | null> {
  const { promise, resolve } = Promise.withResolvers<string | null>();
  const socket = await Bun.udpSocket({
    hostname: source ?? (target.includes(":") ? "::" : "0.0.0.0"),
    connect: { hostname: target, port },
    socket: { data: (_, chunk) => resolve(String(chunk)), error: () => resolve(null) },
  });
  const send = () => {
    try {
      socket.send("?");
    } catch {
      resolve(null);
    }
  };
  send();
  const repeat = setInterval(send, REPEAT_MS);
  const timer = setTimeout(() => resolve(null), PATIENCE_MS);
  return promise.finally(() => {
    clearInterval(repeat);
    clearTimeout(timer);
    socket.close();
  });
}

if (import.meta.main) {
  const calls: readonly AskedCall[] = await Bun.stdin.json();
  const answers = await Promise.all(
    calls.map((call) => call.protocol === "tcp" ? askTcp(call) : askUdp(call).catch(() => null)),
  );
  await Bun.write(Bun.stdout, JSON.stringify(answers));
  // Sockets that failed may keep the program running.
  process.exit();
}
