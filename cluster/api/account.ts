/** The service account of a pod: what the API server is asked with, and how it is known. @module */
import { ignoreSystemErrors } from "../../ffi/sys/error.ts";
import { readText } from "../../ffi/sys/file.ts";
import { NoAccount } from "./problem.ts";

/** Where every pod finds its own. */
export const SERVICE_ACCOUNT_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount";

export interface ApiAccess {
  /** @example `https://10.96.0.1:443` */
  readonly server: string;
  /** Has `token` and `ca.crt`. A process that leaves the pod's mounts names it by a descriptor: `/proc/self/fd/N`. */
  readonly accountDirectory: string;
}

/** The server's Service as a pod knows it; `undefined` elsewhere. */
export function findApiServer(env: Readonly<Record<string, string | undefined>>): string | undefined {
  const host = env["KUBERNETES_SERVICE_HOST"];
  if (!host) return undefined;
  return `https://${host.includes(":") ? `[${host}]` : host}:${env["KUBERNETES_SERVICE_PORT"] || "443"}`;
}

export interface Credentials {
  readonly token: string;
  /** Only servers with a certificate of these authorities get the token. */
  readonly ca: string;
}

// A token lives for an hour, and the kubelet replaces it in time.
const MAX_AGE_MS = 60_000;

export class Account {
  readonly #directory: string;
  #credentials: Credentials | undefined;
  #readAtMs = 0;

  constructor(directory: string) {
    this.#directory = directory;
  }

  /** @throws {NoAccount} */
  credentials(): Credentials {
    if (this.#credentials && performance.now() - this.#readAtMs < MAX_AGE_MS) return this.#credentials;
    this.#credentials = { token: this.#read("token"), ca: this.#read("ca.crt") };
    this.#readAtMs = performance.now();
    return this.#credentials;
  }

  /** What was refused is read again. */
  forget(): void {
    this.#credentials = undefined;
  }

  #read(name: string): string {
    const path = `${this.#directory}/${name}`;
    const text = ignoreSystemErrors(() => readText(path))?.trim();
    if (text) return text;
    throw new NoAccount(`"${path}" cannot be read`, { details: "the pod needs a service account" });
  }
}
