import type { LintRule } from "./rule.ts";
import { chainOrderRule } from "./rules/chain_order.ts";
import { commentsRule } from "./rules/comments.ts";
import { deprecatedKeyRule } from "./rules/deprecated_key.ts";
import { duplicateKeyRule } from "./rules/duplicate_key.ts";
import { duplicateNameRule } from "./rules/duplicate_name.ts";
import { fileExtensionRule } from "./rules/file_extension.ts";
import { foreignRouteRule } from "./rules/foreign_route.ts";
import { gatewayOutsideSubnetRule } from "./rules/gateway_outside_subnet.ts";
import { invalidValueRule } from "./rules/invalid_value.ts";
import { missingCapabilityRule } from "./rules/missing_capability.ts";
import { missingGatewayRule } from "./rules/missing_gateway.ts";
import { missingIpamRule } from "./rules/missing_ipam.ts";
import { missingRouteRule } from "./rules/missing_route.ts";
import { oldVersionRule } from "./rules/old_version.ts";
import { overlappingRangesRule } from "./rules/overlapping_ranges.ts";
import { routeOverlapRule } from "./rules/route_overlap.ts";
import { sharedBridgeRule } from "./rules/shared_bridge.ts";
import { sharedSubnetRule } from "./rules/shared_subnet.ts";
import { smallMtuRule } from "./rules/small_mtu.ts";
import { syntaxRule } from "./rules/syntax.ts";
import { twoInterfacesRule } from "./rules/two_interfaces.ts";
import { unknownKeyRule } from "./rules/unknown_key.ts";
import { unknownPluginRule } from "./rules/unknown_plugin.ts";
import { unknownRuleRule } from "./rules/unknown_rule.ts";

const RULES_OF_FILES: readonly LintRule[] = [
  syntaxRule,
  invalidValueRule,
  unknownKeyRule,
  duplicateKeyRule,
  unknownPluginRule,
  chainOrderRule,
  twoInterfacesRule,
  missingCapabilityRule,
  missingIpamRule,
  missingRouteRule,
  missingGatewayRule,
  smallMtuRule,
  gatewayOutsideSubnetRule,
  overlappingRangesRule,
  sharedSubnetRule,
  sharedBridgeRule,
  routeOverlapRule,
  foreignRouteRule,
  duplicateNameRule,
  fileExtensionRule,
  deprecatedKeyRule,
  oldVersionRule,
  commentsRule,
];

/** The order is that of the docs. */
export const LINT_RULES: readonly LintRule[] = [
  ...RULES_OF_FILES,
  unknownRuleRule(RULES_OF_FILES.map(({ name }) => name)),
];
