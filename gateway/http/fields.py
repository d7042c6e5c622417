"""What bodies are made of: no unknown keys, and no coercion but of 5.0 to 5 (as vLLM takes it).

Checking ends at the first fault of a list or an object: an error costs a thousand times what its input cost to send,
and a few megabytes of them would hold up the event loop for half a minute.
"""

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

MAX_ALTERNATIVES = 20

Item = TypeVar("Item")
Items = Annotated[list[Item], Field(fail_fast=True)]

Finite = Annotated[float, Field(allow_inf_nan=False)]


def whole(value: object) -> object:
    """Some languages write every number as a fraction; JSON knows no difference between 5 and 5.0."""
    return int(value) if type(value) is float and value.is_integer() else value


WHOLE = BeforeValidator(whole)
Count = Annotated[int, Field(ge=1, lt=2**31), WHOLE]
AnyCount = Annotated[int, Field(ge=0, lt=2**31), WHOLE]
TokenId = AnyCount
Alternatives = Annotated[int, Field(ge=0, le=MAX_ALTERNATIVES), WHOLE]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _one_unknown(cls, value: Any) -> Any:
        """Of many unknown keys the first one is enough."""
        if not isinstance(value, dict) or len(value) <= len(cls.model_fields):
            return value
        known = {field.alias or name for name, field in cls.model_fields.items()}
        first = next(name for name in value if name not in known)
        return {name: entry for name, entry in value.items() if name in known or name is first}
