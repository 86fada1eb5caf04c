/** The configuration of the `network-policy` plugin. @module */
import { type Infer, int, lazy, nonEmptyString, object, refine, withDefault } from "../../spec/schema.ts";

const MAX_WAIT_MS = 600_000;
const absolutePath = refine(nonEmptyString, "an absolute path", (path) => path.startsWith("/"));

/** Each has a default: DEL must do without them. */
export const networkPolicyConfig = lazy(() =>
  object({
    /** Where `cni serve` tells which policies a pod has. */
    socketPath: withDefault(absolutePath, "/run/cni/policy/socket"),
    /** Where `cni serve` keeps what it last knew. */
    dataDir: withDefault(absolutePath, "/var/lib/cni"),
    /** How long ADD waits for an answer. Then the pod starts closed, and opens once its policies are known. */
    waitMs: withDefault(int({ min: 0, max: MAX_WAIT_MS }), 5000),
  })
);

export type NetworkPolicyConfig = Infer<typeof networkPolicyConfig>;
