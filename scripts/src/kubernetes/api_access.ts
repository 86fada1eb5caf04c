/** The API without kubectl, where the API server can be reached: for what is timed. @module */
import { readFileSync } from "node:fs";
import { ADMIN_KUBECONFIG } from "./directory.ts";

/** Somebody has to read the answer: else its connection is kept. @throws {Error} if it is not one of success */
export type ApiRequest = (path: string, init?: BunFetchRequestInit) => Promise<Response>;

/** What it gives asks with all rights. */
export function readAccess(): { readonly request: ApiRequest } {
  const { clusters: [{ cluster }], users: [{ user }] } = JSON.parse(readFileSync(ADMIN_KUBECONFIG, "utf8"));
  const tls = { ca: readFileSync(cluster["certificate-authority"], "utf8") };
  const headers = { authorization: `Bearer ${user.token}`, "content-type": "application/json" };
  return {
    async request(path, init = {}) {
      const answer = await fetch(`${cluster.server}${path}`, {
        tls,
        ...init,
        headers: { ...headers, ...init.headers },
      });
      if (!answer.ok) throw new Error(`${init.method ?? "GET"} ${path}: ${answer.status} ${await answer.text()}`);
      return answer;
    },
  };
}
