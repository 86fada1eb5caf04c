/**
 * The API server of Kubernetes, as far as it gets, lists and watches objects, with the faults that a real one has.
 *
 * @module
 */
import type { IListMeta } from "@kubernetes-models/apimachinery/apis/meta/v1/ListMeta";
import type { IObjectMeta } from "@kubernetes-models/apimachinery/apis/meta/v1/ObjectMeta";
import type { IStatus } from "@kubernetes-models/apimachinery/apis/meta/v1/Status";
import type { IWatchEvent } from "@kubernetes-models/apimachinery/apis/meta/v1/WatchEvent";
import { readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { createServer, type Server } from "node:https";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import type { Netns } from "../ffi/netns/netns.ts";
import { runInNetns } from "./netns.ts";

/** An object of one of these kinds; the server gives it what is missing. */
export interface ServedObject {
  readonly apiVersion: string;
  readonly kind: keyof typeof LIST_PATHS;
  readonly metadata?: IObjectMeta;
}

interface ServedStatus {
  readonly status?: { readonly conditions?: readonly { readonly type: string }[] };
}

const LIST_PATHS = {
  Node: "/api/v1/nodes",
  Pod: "/api/v1/pods",
  Namespace: "/api/v1/namespaces",
  NetworkPolicy: "/apis/networking.k8s.io/v1/networkpolicies",
  // These are for kube-proxy and for other engines of policies.
  Service: "/api/v1/services",
  Endpoints: "/api/v1/endpoints",
  EndpointSlice: "/apis/discovery.k8s.io/v1/endpointslices",
  ServiceCIDR: "/apis/networking.k8s.io/v1/servicecidrs",
} as const;

/** Has what one request asks for. */
interface Selection {
  readonly kind: ServedObject["kind"];
  readonly namespace: string | undefined;
  /** By `metadata.name`, and the node of pods by `spec.nodeName`; a `!` behind the name is for another value. */
  readonly fields: ReadonlyMap<string, string>;
}

/** What it has at one time. */
interface State {
  readonly version: number;
  readonly objects: ReadonlyMap<string, ServedObject>;
}

/** A change, for watches that begin before it. */
interface Change {
  readonly version: number;
  readonly event: IWatchEvent;
}

/** Where it listens, and who may ask. */
export interface ApiServerOptions {
  readonly address: string;
  /** Gets the keys, and `ca.crt` as a pod has it. */
  readonly directory: string;
  readonly token: string;
  readonly objects?: readonly ServedObject[];
}

/** Whether it has answered in the server's place. */
type Fault = (url: URL, response: ServerResponse) => boolean;

/** An API server that ends with its scope. */
export class ApiServer implements Disposable {
  /** The only one that it accepts. */
  token: string;
  /** Of a list, where the client names no limit. */
  pageSize = Infinity;
  /** Is asked before the server answers. */
  fault: Fault | undefined;
  /** Whether clients may change the status of objects. */
  mayPatchStatus = false;
  /** Watches get nothing, as if the connection were half open. */
  isSilent = false;
  /** Path and query of all requests. */
  readonly requests: string[] = [];
  /** The certificate of the authority that signed its own. */
  readonly ca: string;
  readonly #server: Server;
  readonly #address: string;
  readonly #watches = new Map<ServerResponse, Selection>();
  #state: State = { version: 1000, objects: new Map() };
  /** Lists of the cache have this; `undefined` if the cache is up to date. */
  #staleCache: State | undefined;
  #changes: Change[] = [];
  /** What happened before this version is forgotten. */
  #oldestVersion = 0;

  constructor(netns: Netns, { address, directory, token, objects = [] }: ApiServerOptions) {
    makeCertificates(netns, address, directory);
    const read = (name: string) => readFileSync(join(directory, name), "utf8");
    this.ca = read("ca.crt");
    this.token = token;
    this.#address = address;
    this.#server = createServer({ key: read("api.key"), cert: read("api.crt") });
    this.#server.on("request", (request: IncomingMessage, response: ServerResponse) => {
      const { url, headers, method } = request;
      if (method === "PATCH") void this.#patch(request, response);
      else this.#answer(new URL(url!, "https://api"), headers.authorization, response);
    });
    netns.run(() => void this.#server.listen(0, address));
    const stored = objects.map((object, index) => this.#complete(object, undefined, 1001 + index));
    this.#state = { version: 1000 + objects.length, objects: new Map(stored.map((object) => [keyOf(object), object])) };
    this.#oldestVersion = this.version;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** For programs of Kubernetes: a file that names the server and has the token. */
  get kubeconfig(): string {
    return JSON.stringify({
      apiVersion: "v1",
      kind: "Config",
      clusters: [{ name: "api", cluster: { server: this.url, "certificate-authority-data": btoa(this.ca) } }],
      users: [{ name: "node", user: { token: this.token } }],
      contexts: [{ name: "node", context: { cluster: "api", user: "node" } }],
      "current-context": "node",
    });
  }

  get url(): string {
    return `https://${this.#address.includes(":") ? `[${this.#address}]` : this.#address}:${this.port}`;
  }

  get version(): number {
    return this.#state.version;
  }

  get watchCount(): number {
    return this.#watches.size;
  }

  /** Adds an object, or changes the one with its name. */
  put(object: ServedObject): void {
    const known = this.#state.objects.get(keyOf(object));
    this.#change(known ? "MODIFIED" : "ADDED", this.#complete(object, known, this.version + 1));
  }

  remove(kind: ServedObject["kind"], name: string, namespace?: string): void {
    const object = this.#state.objects.get(pathOf(kind, namespace, name))!;
    const metadata = { ...object.metadata, resourceVersion: `${this.version + 1}` };
    this.#change("DELETED", { ...object, metadata });
  }

  /** Tells watches that nothing of theirs has changed. */
  sendBookmarks(): void {
    this.#state = { ...this.#state, version: this.version + 1 };
    for (const kind of Object.keys(LIST_PATHS)) {
      const object = {
        kind,
        apiVersion: "v1",
        metadata: { resourceVersion: `${this.version}`, creationTimestamp: null },
      };
      this.#send({ type: "BOOKMARK", object });
    }
  }

  /** Forgets what has changed: watches that begin in the past are refused. */
  compact(): void {
    this.#changes = [];
    this.#state = { ...this.#state, version: this.version + 1 };
    this.#oldestVersion = this.version;
  }

  /** Ends all watches, and says why. */
  sendError(code: number, message: string): void {
    const line = JSON.stringify({ type: "ERROR", object: statusOf(code, message) });
    for (const watch of this.#watches.keys()) watch.write(`${line}\n`);
    this.endWatches();
  }

  /** Sends text to all watches, whatever it is. */
  sendText(text: string): void {
    for (const watch of this.#watches.keys()) watch.write(text);
  }

  endWatches(): void {
    for (const watch of this.#watches.keys()) watch.end();
  }

  /** In the middle of an answer. */
  breakWatches(): void {
    for (const watch of this.#watches.keys()) watch.destroy();
  }

  /** From now on, its cache lags behind. */
  freezeCache(): void {
    this.#staleCache = this.#state;
  }

  /** Has what it had before, as after a backup was restored. */
  restore(): void {
    this.#state = this.#staleCache!;
    this.#staleCache = undefined;
    this.#changes = [];
  }

  [Symbol.dispose](): void {
    for (const watch of this.#watches.keys()) watch.destroy();
    this.#server.close();
    this.#server.closeAllConnections();
  }

  #complete(object: ServedObject, known: ServedObject | undefined, version: number): ServedObject {
    const { kind, apiVersion, ...rest } = object;
    // In the order of the real one.
    const metadata = {
      name: object.metadata!.name!,
      uid: known?.metadata?.uid ?? crypto.randomUUID(),
      resourceVersion: "",
      creationTimestamp: known?.metadata?.creationTimestamp ?? new Date().toISOString(),
      ...object.metadata,
    };
    return { kind, apiVersion, ...rest, metadata: { ...metadata, resourceVersion: `${version}` } };
  }

  #change(type: "ADDED" | "MODIFIED" | "DELETED", object: ServedObject): void {
    const objects = new Map(this.#state.objects);
    if (type === "DELETED") objects.delete(keyOf(object));
    else objects.set(keyOf(object), object);
    this.#state = { version: this.version + 1, objects };
    const event = { type, object };
    this.#changes.push({ version: this.version, event });
    this.#send(event);
  }

  #send(event: IWatchEvent): void {
    if (this.isSilent) return;
    const line = `${JSON.stringify(event)}\n`;
    for (const [watch, selection] of this.#watches) if (isToldTo(event, selection)) watch.write(line);
  }

  #answer(url: URL, authorization: string | undefined, response: ServerResponse): void {
    this.requests.push(`${url.pathname}${url.search}`);
    if (this.fault?.(url, response)) return;
    if (authorization !== `Bearer ${this.token}`) return refuse(response, 401, "Unauthorized");
    const selection = selectionOf(url);
    if (selection && url.searchParams.has("watch")) return this.#watch(url, selection, response);
    if (selection) return this.#list(url, selection, response);
    const object = this.#state.objects.get(url.pathname);
    if (object) answer(response, 200, JSON.stringify(object));
    else refuse(response, 404, `${url.pathname} not found`);
  }

  /** Merges conditions by their type, as a strategic merge patch does. */
  async #patch(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { url = "", headers } = request;
    this.requests.push(`PATCH ${url}`);
    let text = "";
    for await (const piece of request) text += piece;
    const object = this.#state.objects.get(url.replace(/\/status$/, "")) as ServedObject & ServedStatus | undefined;
    if (headers.authorization !== `Bearer ${this.token}`) return refuse(response, 401, "Unauthorized");
    if (!this.mayPatchStatus) return refuse(response, 403, "nodes/status is forbidden");
    if (headers["content-type"] !== "application/strategic-merge-patch+json" || !url.endsWith("/status") || !object) {
      return refuse(response, 415, `${headers["content-type"]} for ${url}`);
    }
    const { status } = JSON.parse(text) as Required<ServedStatus>;
    const types = status.conditions!.map(({ type }) => type);
    const others = object.status?.conditions?.filter(({ type }) => !types.includes(type)) ?? [];
    this.put(
      { ...object, status: { ...object.status, conditions: [...others, ...status.conditions!] } } as ServedObject,
    );
    answer(response, 200, JSON.stringify(this.#state.objects.get(keyOf(object))));
  }

  #list({ searchParams }: URL, selection: Selection, response: ServerResponse): void {
    const { objects, version } = searchParams.has("resourceVersion") && this.#staleCache || this.#state;
    const [from, pageVersion] = (searchParams.get("continue") ?? `0 ${version}`).split(" ").map(Number) as [
      number,
      number,
    ];
    if (pageVersion < this.#oldestVersion) return refuse(response, 410, "The provided continue parameter is too old");
    const found = objects.values().filter((object) => isSelected(object, selection)).toArray();
    const metadata: IListMeta = { resourceVersion: `${pageVersion}` };
    if (found.length > from + this.pageSize) metadata.continue = `${from + this.pageSize} ${pageVersion}`;
    const items = found.slice(from, from + this.pageSize);
    answer(
      response,
      200,
      JSON.stringify({ kind: `${selection.kind}List`, apiVersion: items[0]?.apiVersion, metadata, items }),
    );
  }

  #watch({ searchParams }: URL, selection: Selection, response: ServerResponse): void {
    const from = Number(searchParams.get("resourceVersion"));
    if (from < this.#oldestVersion) return refuse(response, 410, `too old resource version: ${from}`);
    response.writeHead(200, { "Content-Type": "application/json" });
    response.flushHeaders();
    this.#watches.set(response, selection);
    const end = setTimeout(() => response.end(), Number(searchParams.get("timeoutSeconds")) * 1000);
    response.on("close", () => {
      clearTimeout(end);
      this.#watches.delete(response);
    });
    for (const { version, event } of this.#changes) {
      if (version > from && isToldTo(event, selection)) response.write(`${JSON.stringify(event)}\n`);
    }
  }
}

/** Returns `undefined` for the path of one object. */
function selectionOf({ pathname, searchParams }: URL): Selection | undefined {
  const [, prefix = "", namespace, resource] = /^(.*)\/namespaces\/([^/]+)\/([^/]+)$/.exec(pathname) ?? [];
  const list = namespace === undefined ? pathname : `${prefix}/${resource}`;
  const kind = (Object.keys(LIST_PATHS) as ServedObject["kind"][]).find((each) => LIST_PATHS[each] === list);
  const fields = new Map(
    (searchParams.get("fieldSelector") ?? "").split(",").filter((text) => text !== "")
      .map((text) => text.split("=") as [string, string]),
  );
  return kind && { kind, namespace, fields };
}

/** Bookmarks are for all watches of their kind. */
const isToldTo = ({ type, object }: IWatchEvent, selection: Selection): boolean =>
  type === "BOOKMARK"
    ? (object as ServedObject).kind === selection.kind
    : isSelected(object as ServedObject, selection);

function isSelected(object: ServedObject, { kind, namespace, fields }: Selection): boolean {
  const { metadata, spec, status } = object as ServedObject & {
    readonly spec?: { readonly nodeName?: string };
    readonly status?: { readonly podIPs?: readonly { readonly ip: string }[] };
  };
  const values: Readonly<Record<string, string | undefined>> = {
    "metadata.name": metadata!.name,
    "spec.nodeName": spec?.nodeName ?? "",
    "status.podIP": status?.podIPs?.[0]?.ip ?? "",
  };
  return object.kind === kind && (namespace === undefined || metadata!.namespace === namespace) &&
    [...fields].every(([field, value]) =>
      field.endsWith("!") ? values[field.slice(0, -1)] !== value : values[field] === value
    );
}

const keyOf = ({ kind, metadata }: ServedObject): string => pathOf(kind, metadata!.namespace, metadata!.name!);

function pathOf(kind: ServedObject["kind"], namespace: string | undefined, name: string): string {
  const list = LIST_PATHS[kind];
  if (namespace === undefined) return `${list}/${name}`;
  const [, prefix, resource] = /^(.*)\/([^/]+)$/.exec(list)!;
  return `${prefix}/namespaces/${namespace}/${resource}/${name}`;
}

/** Answers at once, and with all of it. */
export function answer(
  response: ServerResponse,
  status: number,
  text: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  response.writeHead(status, { "Content-Type": "application/json", ...headers });
  response.end(text);
}

/** Answers as the real one does where it cannot. */
export function refuse(
  response: ServerResponse,
  code: number,
  message: string,
  headers: Readonly<Record<string, string>> = {},
): void {
  answer(response, code, JSON.stringify(statusOf(code, message)), headers);
}

const statusOf = (code: number, message: string): IStatus => ({
  kind: "Status",
  apiVersion: "v1",
  metadata: {},
  status: "Failure",
  message,
  code,
});

const NEW_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2".split(" ");

/** An authority, and what it signs for the server. */
function makeCertificates(netns: Netns, address: string, directory: string): void {
  const request = (subject: string, name: string, ...options: string[]) => {
    const files = ["-keyout", join(directory, `${name}.key`), "-out", join(directory, `${name}.crt`)];
    runInNetns(netns, "openssl", "req", "-x509", ...NEW_KEY, "-subj", `/CN=${subject}`, ...files, ...options);
  };
  request("kubernetes", "ca");
  const signer = ["-CA", join(directory, "ca.crt"), "-CAkey", join(directory, "ca.key")];
  request("kube-apiserver", "api", ...signer, "-addext", `subjectAltName=IP:${address}`);
}
