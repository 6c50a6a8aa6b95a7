"""What may be injected without `force` is at least what Ottla answers itself."""

import inspect
import re
import sys

import pytest

from ottla.broker.server.apis import APIS, Api
from ottla.protocol.errors import ErrorCode
from ottla.testing.faults.error_codes import codes_of
from tests.broker.authorization.samples import Sample, samples

NAMED = re.compile(r"ErrorCode\.([A-Z_]+)")


@pytest.mark.parametrize("api", list(APIS.values()), ids=lambda api: api.name)
def test_errors_that_a_handler_names_can_be_injected(api: Api) -> None:
    source = inspect.getsource(sys.modules[api.handler().__module__])

    assert {ErrorCode[name] for name in NAMED.findall(source)} - {ErrorCode.NONE} <= codes_of(api)


@pytest.mark.parametrize("sample", list(samples()), ids=str)
def test_refusals_of_the_authorizer_can_be_injected(sample: Sample) -> None:
    assert {code for code in sample.refusals.values() if isinstance(code, ErrorCode)} <= codes_of(APIS[sample.key])
