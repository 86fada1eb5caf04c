import { type Cidr, parseCidr } from "../../ffi/address.ts";
import { ignoreErrors } from "../../ffi/sys/error.ts";
import { readText } from "../../ffi/sys/file.ts";
import { CniError, Code } from "../../spec/error.ts";
import { excerpt } from "../../spec/schema.ts";

// Where a pod finds its token, and the certificate of the API server.
const SERVICE_ACCOUNT_DIRECTORY = "/var/run/secrets/kubernetes.io/serviceaccount";

const TIMEOUT_MS = 10_000;

type Env = Readonly<Record<string, string | undefined>>;

/** Reads `spec.podCIDRs` by one question to the API server. @throws {CniError} if there is none, with what to do */
export async function findPodCidrs(node: string, env: Env, account = SERVICE_ACCOUNT_DIRECTORY): Promise<Cidr[]> {
  const refuse = (problem: string, details: string, code: Code = Code.TryAgainLater) =>
    new CniError(code, `Cannot read the pod ranges of node "${node}": ${problem}`, { details });
  const server = apiServer(env);
  if (server === undefined) {
    throw refuse("KUBERNETES_SERVICE_HOST is not set", "--node works in a pod of Kubernetes", Code.InvalidEnvironment);
  }
  const [token, ca] = ["token", "ca.crt"].map((name) => ignoreErrors(["ENOENT"], () => readText(`${account}/${name}`)));
  if (token === undefined || ca === undefined) {
    throw refuse(`"${account}" has no token or ca.crt`, "the pod needs a service account", Code.InvalidEnvironment);
  }
  const url = `${server}/api/v1/nodes/${encodeURIComponent(node)}`;
  const { status, text } = await get(url, token, ca).catch((error) => {
    throw refuse(`${server} does not answer`, error instanceof Error ? error.message : String(error));
  });
  if (status === 404) throw refuse("there is no such node", "--node needs the node's name: spec.nodeName");
  if (status === 401 || status === 403) {
    throw refuse(`${server} answers ${status}`, "the service account needs the right to get nodes");
  }
  const cidrs = status === 200 ? parsePodCidrs(text) : undefined;
  if (!cidrs) throw refuse(`${server} answers ${status}`, `expected a node: got ${excerpt(text)}`);
  if (cidrs.length > 0) return cidrs;
  throw refuse("it has no spec.podCIDRs", "start kube-controller-manager with --allocate-node-cidrs, or give ranges");
}

function apiServer(env: Env): string | undefined {
  const host = env["KUBERNETES_SERVICE_HOST"];
  if (!host) return undefined;
  return `https://${host.includes(":") ? `[${host}]` : host}:${env["KUBERNETES_SERVICE_PORT"] || "443"}`;
}

async function get(
  url: string,
  token: string,
  ca: string,
): Promise<{ readonly status: number; readonly text: string }> {
  const response = await fetch(url, {
    headers: { Accept: "application/json", Authorization: `Bearer ${token.trim()}` },
    redirect: "error",
    signal: AbortSignal.timeout(TIMEOUT_MS),
    // The runtime has a variable that would trust anybody with the token.
    tls: { ca, rejectUnauthorized: true },
  });
  return { status: response.status, text: await response.text() };
}

/** Returns `undefined` for what is no node, such as the page of a proxy. */
function parsePodCidrs(text: string): Cidr[] | undefined {
  try {
    const { spec } = JSON.parse(text) as { readonly spec: { readonly podCIDRs?: readonly string[] } };
    return (spec.podCIDRs ?? []).map(parseCidr);
  } catch {
    return undefined;
  }
}
