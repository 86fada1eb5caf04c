/** Requests of others that keep an API server busy: they ask for much, and do not read it. @module */
import type { KubernetesApi } from "./api_access.ts";

/** Every user may ask for it. It has megabytes. */
const LARGE = "/openapi/v2";
/** One after the other on a connection: the kernel's buffers take the first ones. */
const PIPELINED = 20;
/** Others' requests end, and leave their place to one of these. */
const REFUSALS = 5;
const PAUSE_MS = 50;
const PATIENCE_MS = 20_000;

export interface ApiLoad extends Disposable {
  /** @returns the answer to somebody else's request, without its content @throws {Error} if it is another than 429 */
  requireRefusal(): Promise<Response>;
}

/** Asks as a user who is refused like all others, until the API server takes no more requests. */
export async function loadApi(api: KubernetesApi): Promise<ApiLoad> {
  using resources = new DisposableStack();
  let refusals = 0;
  for (const deadline = performance.now() + PATIENCE_MS; refusals < REFUSALS;) {
    if (performance.now() > deadline) throw new Error("The API server takes all requests");
    const { status } = await askShort(api);
    refusals = status === 429 ? refusals + 1 : 0;
    if (status === 200) resources.use(await openSlowReader(api));
    await Bun.sleep(PAUSE_MS);
  }
  const owned = resources.move();
  return {
    async requireRefusal() {
      const answer = await askShort(api);
      if (answer.status === 429) return answer;
      throw new Error(`The API server is not busy any more: it answers ${answer.status}`);
    },
    [Symbol.dispose]: () => owned.dispose(),
  };
}

async function askShort({ ask }: KubernetesApi): Promise<Response> {
  const answer = await ask("/api/v1/nodes?limit=1");
  await answer.text();
  return answer;
}

async function openSlowReader({ server, ca, token }: KubernetesApi): Promise<Disposable> {
  const lines = [`GET ${LARGE} HTTP/1.1`, `Host: ${server.host}`, `Authorization: Bearer ${token}`];
  const socket = await Bun.connect({
    hostname: server.hostname,
    port: Number(server.port),
    tls: { ca },
    socket: {
      open: (self) => void self.write(`${lines.join("\r\n")}\r\n\r\n`.repeat(PIPELINED)),
      data: (self) => void self.pause(),
      error() {},
    },
  });
  return { [Symbol.dispose]: () => void socket.terminate() };
}
