/** The API server of Kubernetes, as far as it tells a node's pod ranges. @module */
import type { INode } from "kubernetes-models/v1/Node";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { runInNetns } from "./netns.ts";
import type { Netns } from "../ffi/netns/netns.ts";

/** An API server that ends with its scope. */
export interface ApiServer extends Disposable {
  readonly port: number;
  /** The certificate, which signed itself. */
  readonly ca: string;
}

const NEW_CERTIFICATE =
  "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=kubernetes"
    .split(" ");

/** Answers in a namespace. @param address of the namespace @param directory for its key */
export function serveApi(
  netns: Netns,
  address: string,
  token: string,
  nodes: readonly INode[],
  directory: string,
): ApiServer {
  const [key, cert] = ["api.key", "api.crt"].map((name) => join(directory, name)) as [string, string];
  runInNetns(
    netns,
    ...NEW_CERTIFICATE,
    "-keyout",
    key,
    "-out",
    cert,
    "-addext",
    `subjectAltName=IP:${address}`,
  );
  const server = netns.run(() =>
    Bun.serve({
      hostname: address,
      port: 0,
      tls: { key: readFileSync(key), cert: readFileSync(cert) },
      fetch(request) {
        if (request.headers.get("Authorization") !== `Bearer ${token}`) return new Response("", { status: 401 });
        const { pathname } = new URL(request.url);
        const node = nodes.find(({ metadata }) => pathname === `/api/v1/nodes/${metadata!.name}`);
        return node ? Response.json(node) : new Response("", { status: 404 });
      },
    })
  );
  return {
    port: server.port!,
    ca: readFileSync(cert, "utf8"),
    [Symbol.dispose]: () => void server.stop(true),
  };
}
