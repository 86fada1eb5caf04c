/** NetworkPolicy: what the server's part says of it. @module */
import { DEFAULT_POLICY_STATE_DIRECTORY, findPolicyStatus } from "../../../policy/status.ts";
import { advise, broken, type Finding, ok, warning } from "../finding.ts";
import type { Subject } from "../subject.ts";

const FAILURES = "see docs/policy.md, failures";

export function checkPolicy({ network }: Subject): Finding[] {
  const status = findPolicyStatus(DEFAULT_POLICY_STATE_DIRECTORY);
  if (status?.network !== network.name) return [];
  const { apiProblem, heardAtMs, closedPods, isSynced, problems, pods, isolatedPods, policies, unreadablePolicies } =
    status;
  const since = heardAtMs === undefined ? "" : ` since ${new Date(heardAtMs).toISOString()}`;
  return [
    ...problems.map((problem) => broken(`policies are not in the kernel: ${problem}`, advise(FAILURES))),
    ...closedPods.map((pod) =>
      broken(
        `pod ${pod} is closed, as its labels are not known`,
        advise("look at the API server, and at the way there"),
      )
    ),
    ...unreadablePolicies.map((policy) =>
      warning(
        `policy ${policy} allows less than it says, as something in it is not known`,
        advise("see the log of cni serve; a newer version of this program may know it"),
      )
    ),
    ...isSynced || apiProblem !== undefined ? [] : [
      warning("policies are not in force yet: the API server has not listed them", advise("see the log of cni serve")),
    ],
    ...apiProblem === undefined ? [] : [
      warning(
        `the API server does not tell of policies${since}: ${apiProblem}`,
        advise("look at the API server, and at the way there; known policies are in force meanwhile"),
      ),
    ],
    ...isSynced && problems.length === 0
      ? [ok(`${policies} policies are known, and isolate ${isolatedPods} of ${pods} pods`)]
      : [],
  ];
}
