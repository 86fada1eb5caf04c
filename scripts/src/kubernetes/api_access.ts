/** The API without kubectl, where the API server can be reached: for what is timed, or refused. @module */
import { readFileSync } from "node:fs";
import { ADMIN_KUBECONFIG } from "./directory.ts";

/** Somebody has to read the answer: else its connection is kept. @throws {Error} if it is not one of success */
export type ApiRequest = (path: string, init?: BunFetchRequestInit) => Promise<Response>;

export interface KubernetesApi {
  readonly server: URL;
  /** The authority of its certificate. */
  readonly ca: string;
  readonly token: string;
  readonly request: ApiRequest;
  /** Gives an answer of any status. */
  readonly ask: ApiRequest;
}

/** @param kubeconfig whose user asks: without one, that with all rights */
export function readAccess(kubeconfig = ADMIN_KUBECONFIG): KubernetesApi {
  const { clusters: [{ cluster }], users: [{ user }] } = JSON.parse(readFileSync(kubeconfig, "utf8"));
  const ca = readFileSync(cluster["certificate-authority"], "utf8");
  const headers = { authorization: `Bearer ${user.token}`, "content-type": "application/json" };
  const ask: ApiRequest = (path, init = {}) =>
    fetch(`${cluster.server}${path}`, { tls: { ca }, ...init, headers: { ...headers, ...init.headers } });
  return {
    server: new URL(cluster.server),
    ca,
    token: user.token,
    ask,
    async request(path, init = {}) {
      const answer = await ask(path, init);
      if (!answer.ok) throw new Error(`${init.method ?? "GET"} ${path}: ${answer.status} ${await answer.text()}`);
      return answer;
    },
  };
}
