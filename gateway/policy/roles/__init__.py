"""Fluid roles: who prefills, who decodes, whether and when to hand off, and how large a prompt's chunk may be."""

from gateway.policy.roles.fluid import Fluid
from gateway.policy.roles.knobs import Aims, Knobs
from gateway.policy.roles.law import StepLaw

__all__ = ["Aims", "Fluid", "Knobs", "StepLaw"]
