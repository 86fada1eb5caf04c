/** NetworkPolicy: what the server's part says of it, and which pods are closed. @module */
import { findTable } from "../../../ffi/nft/objects.ts";
import { closedPods } from "../../../plugins/lib/policy/closed_pods.ts";
import { policyTable } from "../../../plugins/lib/ruleset/policy_tables.ts";
import { DEFAULT_POLICY_STATE_DIRECTORY, findPolicyStatus, type PolicyStatus } from "../../../policy/status.ts";
import { advise, broken, type Finding, ok, warning } from "../finding.ts";
import { describeSilence } from "../silent_part.ts";
import type { Subject } from "../subject.ts";

const FAILURES = "see docs/policy.md, failures";

export function checkPolicy({ network, host: { netns: { nft } } }: Subject): Finding[] {
  if (!findTable(nft, policyTable)) return [];
  const status = findPolicyStatus(DEFAULT_POLICY_STATE_DIRECTORY);
  return [
    ...closedPods(nft, network.name).map((pod) =>
      broken(
        `pod ${pod} is closed, as its policies are not known`,
        advise("look at the server (cni serve --status), at the API server, and at the way there"),
      )
    ),
    ...status?.network === network.name ? describePolicies(status) : [],
  ];
}

export function describePolicies(status: PolicyStatus): Finding[] {
  const { apiProblem, heardAtMs, isSynced, problems, pods, isolatedPods, policies, unreadablePolicies } = status;
  const silence = describeSilence("policy", status);
  if (silence.length > 0) return silence;
  const since = heardAtMs === undefined ? "" : ` since ${new Date(heardAtMs).toISOString()}`;
  return [
    ...problems.map((problem) => broken(`policies are not in the kernel: ${problem}`, advise(FAILURES))),
    ...unreadablePolicies.map((policy) =>
      warning(
        `policy ${policy} allows less than it says, as something in it is not known`,
        advise("see the log of cni serve; a newer version of this program may know it"),
      )
    ),
    ...isSynced || apiProblem !== undefined ? [] : [
      warning("not all that policies need is listed by the API server yet", advise("see the log of cni serve")),
    ],
    ...apiProblem === undefined ? [] : [
      warning(
        `the API server does not tell of policies${since}: ${apiProblem}`,
        advise("look at the API server, and at the way there; known policies are in force meanwhile"),
      ),
    ],
    ...isSynced && problems.length === 0
      ? [
        ok(
          `${policies} policies are known, and isolate ${isolatedPods} of ${pods} pods; who may talk, and why: cni policy test`,
        ),
      ]
      : [],
  ];
}
